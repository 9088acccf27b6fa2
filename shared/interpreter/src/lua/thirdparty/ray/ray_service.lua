local kube = require("kube")
local rules = require("rules")

-- The worse of two states has the higher number.
local APPLICATIONS = {
  RUNNING = 0, NOT_STARTED = 1, DEPLOYING = 2, DELETING = 3, UNHEALTHY = 4, DEPLOY_FAILED = 5,
}

-- Head and workers together; each replica is taken to need as much as the largest of them.
function GetReplicas(object)
  local cluster = rules.field(object, "spec", "rayClusterConfig")
  local head = rules.field(cluster, "headGroupSpec", "template")
  if head == nil then
    return 0, nil
  end
  local replicas = 1
  local needs = kube.accuratePodRequirements(head)
  local request = rules.field(needs, "resourceRequest") or {}
  for _, group in ipairs(cluster.workerGroupSpecs or {}) do
    replicas = replicas + (group.replicas or 0)
    local worker = group.template and kube.accuratePodRequirements(group.template)
    for _, name in ipairs({ "cpu", "memory" }) do
      local amount = rules.field(worker, "resourceRequest", name)
      if kube.getResourceQuantity(amount) > kube.getResourceQuantity(request[name]) then
        request[name] = amount
      end
    end
  end
  if needs ~= nil and next(request) ~= nil then
    needs.resourceRequest = request
  end
  return replicas, needs
end

-- One replica is the head; the workers are divided as the groups are now, the last group taking
-- what rounding leaves.
function ReviseReplica(object, replicas)
  local groups = rules.field(object, "spec", "rayClusterConfig", "workerGroupSpecs") or {}
  local workers = math.max(0, replicas - 1)
  local total = 0
  for _, group in ipairs(groups) do
    total = total + (group.replicas or 0)
  end
  local left = workers
  for at, group in ipairs(groups) do
    local share
    if at == #groups then
      share = left
    elseif total == 0 then
      share = math.floor(workers / #groups) + (at <= workers % #groups and 1 or 0)
    else
      share = math.floor(workers * (group.replicas or 0) / total + 0.5)
    end
    group.replicas = math.min(share, left)
    left = left - group.replicas
  end
  return object
end

function InterpretHealth(observed)
  return rules.is_true(observed.status, "Ready")
end

local function worse(one, other)
  return other == nil or (APPLICATIONS[one.status] or 0) > (APPLICATIONS[other.status] or 0)
end

function AggregateStatus(template, items)
  if items == nil then
    return template
  end
  -- Only the status is written, and the specs of such services are large.
  template.spec = nil
  if #items == 1 then
    template.status = items[1].status
    return template
  end
  local status = template.status or {}
  template.status = status
  local conditions, applications = {}, {}
  local active, pending
  status.serviceStatus, status.observedGeneration = "Running", 0
  for reported in rules.collected(items) do
    for _, condition in ipairs(reported.conditions or {}) do
      table.insert(conditions, condition)
    end
    status.observedGeneration =
      math.max(status.observedGeneration, reported.observedGeneration or 0)
    if reported.serviceStatus == "" then
      status.serviceStatus = ""
    end
    active = active or reported.activeServiceStatus
    pending = pending or reported.pendingServiceStatus
    local known = rules.field(reported, "activeServiceStatus", "applicationStatuses")
    for name, application in pairs(known or {}) do
      if worse(application, applications[name]) then
        applications[name] = application
      end
    end
  end
  status.conditions = conditions
  status.numServeEndpoints = rules.sum(items, "numServeEndpoints")
  status.lastUpdateTime = rules.latest(items, "lastUpdateTime")
  if active ~= nil then
    active.applicationStatuses = applications
    status.activeServiceStatus = active
  end
  if pending ~= nil then
    status.pendingServiceStatus = pending
  end
  return template
end

function GetDependencies(object)
  local references = rules.references(object)
  local cluster = rules.field(object, "spec", "rayClusterConfig")
  references.add_pod(rules.field(cluster, "headGroupSpec", "template"))
  for _, group in ipairs(rules.field(cluster, "workerGroupSpecs") or {}) do
    references.add_pod(group.template)
  end
  return references.list
end
