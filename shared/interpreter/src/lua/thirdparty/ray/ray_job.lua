local rules = require("rules")

-- The worse of two states has the higher number.
local DEPLOYMENTS = {
  Initializing = 1, Waiting = 2, Suspending = 3, Suspended = 3, Retrying = 4, Running = 5,
  Complete = 6, ValidationFailed = 7, Failed = 8,
}
local JOBS = { PENDING = 1, RUNNING = 2, SUCCEEDED = 3, STOPPED = 4, FAILED = 5 }

function GetComponents(object)
  return rules.ray_components(rules.field(object, "spec", "rayClusterSpec"))
end

function InterpretHealth(observed)
  local status = observed.status or {}
  local deployment = status.jobDeploymentStatus
  return deployment == "Running" or (deployment == "Complete" and status.jobStatus == "SUCCEEDED")
end

function AggregateStatus(template, items)
  if items == nil then
    return template
  end
  -- Only the status is written, and the specs of such jobs are large.
  template.spec = nil
  if #items == 1 then
    template.status = items[1].status
    return template
  end
  local worst, job
  local function rank(ranks, value)
    return ranks[value] or 0
  end
  for status in rules.collected(items) do
    local deployment = status.jobDeploymentStatus
    if deployment ~= nil then
      if worst == nil or rank(DEPLOYMENTS, deployment) > rank(DEPLOYMENTS, worst.jobDeploymentStatus) then
        worst = status
      end
    end
    if rules.is_set(status.jobStatus) then
      if job == nil or rank(JOBS, status.jobStatus) > rank(JOBS, job) then
        job = status.jobStatus
      end
    end
  end
  worst = worst or {}
  template.status = template.status or {}
  template.status.jobStatus = job
  template.status.jobDeploymentStatus = worst.jobDeploymentStatus
  template.status.reason = worst.reason
  template.status.message = worst.message
  return template
end

function GetDependencies(object)
  local references = rules.references(object)
  local cluster = rules.field(object, "spec", "rayClusterSpec")
  references.add_pod(rules.field(cluster, "headGroupSpec", "template"))
  for _, group in ipairs(rules.field(cluster, "workerGroupSpecs") or {}) do
    references.add_pod(group.template)
  end
  references.add_pod(rules.field(object, "spec", "submitterPodTemplate"))
  return references.list
end
