local kube = require("kube")
local rules = require("rules")

local COUNTS = {
  "readyWorkerReplicas", "availableWorkerReplicas", "desiredWorkerReplicas", "minWorkerReplicas",
  "maxWorkerReplicas",
}

function GetComponents(object)
  return rules.ray_components(object.spec)
end

function InterpretHealth(observed)
  local status = observed.status
  return rules.is_true(status, "HeadPodReady")
    and rules.is_true(status, "RayClusterProvisioned")
    and not rules.is_true(status, "RayClusterReplicaFailure")
end

function AggregateStatus(template, items)
  if items == nil then
    return template
  end
  -- Only the status is written, and the specs of such clusters are large.
  template.spec = nil
  if #items == 1 then
    template.status = items[1].status
    return template
  end
  local status = template.status or {}
  template.status = status
  rules.set_sums(template, items, COUNTS)
  local conditions = {}
  local resources = { desiredCPU = "0", desiredMemory = "0", desiredGPU = "0", desiredTPU = "0" }
  status.endpoints, status.head, status.state, status.stateTransitionTimes = nil, nil, nil, nil
  for reported in rules.collected(items) do
    for _, condition in ipairs(reported.conditions or {}) do
      table.insert(conditions, condition)
    end
    for name, sum in pairs(resources) do
      if rules.is_set(reported[name]) then
        resources[name] = kube.resourceAdd(sum, tostring(reported[name]))
      end
    end
    status.endpoints = status.endpoints or reported.endpoints
    status.head = status.head or reported.head
    if status.state == nil and reported.state ~= nil then
      status.state = reported.state
      status.stateTransitionTimes = reported.stateTransitionTimes
    end
  end
  for name, sum in pairs(resources) do
    status[name] = sum
  end
  status.conditions = conditions
  status.lastUpdateTime = rules.latest(items, "lastUpdateTime")
  return template
end
