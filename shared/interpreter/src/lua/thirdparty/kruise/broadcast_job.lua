local kube = require("kube")
local rules = require("rules")

function GetReplicas(object)
  local spec = object.spec
  return spec.parallelism or 1, kube.accuratePodRequirements(spec.template)
end

function ReviseReplica(object, replicas)
  object.spec.parallelism = replicas
  return object
end

-- The labels that the controller adds to its template stay.
function Retain(desired, observed)
  local labels = rules.field(observed, "spec", "template", "metadata", "labels")
  if labels ~= nil then
    local template = desired.spec.template
    template.metadata = template.metadata or {}
    template.metadata.labels = labels
  end
  return desired
end

function InterpretHealth(observed)
  local status = observed.status
  if status.desired == 0 or status.failed ~= 0 then
    return false
  end
  return status.succeeded ~= 0 or status.active ~= 0
end

function ReflectStatus(observed)
  return rules.reflect(observed, {
    "active", "completionTime", "conditions", "desired", "failed", "phase", "startTime",
    "succeeded",
  })
end

-- How the job of a member has ended, if it has.
local function ending(status)
  for _, condition in ipairs(status.conditions or {}) do
    if condition.status == "True" then
      if condition.type == "Complete" or condition.type == "Failed" then
        return condition.type
      end
    end
  end
end

function AggregateStatus(template, items)
  if items == nil then
    return template
  end
  template.status = template.status or {}
  rules.set_sums(template, items, { "active", "succeeded", "failed", "desired" })
  template.status.phase = rules.last(items, "phase", "")
  local failed, complete = {}, 0
  for status, cluster in rules.collected(items) do
    local how = ending(status)
    if how == "Failed" then
      table.insert(failed, cluster)
    elseif how == "Complete" then
      complete = complete + 1
    end
  end
  local conditions = {}
  if #failed > 0 then
    table.insert(conditions, {
      type = "Failed",
      status = "True",
      reason = "JobFailed",
      message = "Job executed failed in member clusters: " .. table.concat(failed, ", "),
    })
  end
  if complete == #items and complete > 0 then
    table.insert(conditions, {
      type = "Completed",
      status = "True",
      reason = "Completed",
      message = "Job completed",
    })
  end
  template.status.conditions = conditions
  return template
end

function GetDependencies(object)
  return kube.getPodDependencies(object.spec.template, object.metadata.namespace)
end
