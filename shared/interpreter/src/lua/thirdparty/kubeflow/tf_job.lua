local rules = require("rules")

local TYPES = { "PS", "Worker", "Chief", "Master", "Evaluator" }

function GetComponents(object)
  return rules.replica_specs(rules.field(object, "spec", "tfReplicaSpecs"), TYPES)
end

function GetDependencies(object)
  local references = rules.references(object)
  for _, name in ipairs(TYPES) do
    references.add_pod(rules.field(object, "spec", "tfReplicaSpecs", name, "template"))
  end
  return references.list
end

function InterpretHealth(observed)
  if rules.field(observed, "status", "conditions") == nil then
    return false
  end
  return not rules.is_true(observed.status, "Failed")
end

-- How the job of a member has ended, if it has.
local function ending(status)
  local last
  for _, condition in ipairs(status.conditions or {}) do
    if condition.type == "Succeeded" or condition.type == "Failed" then
      if condition.status == "True" then
        last = condition.type
      end
    end
  end
  return last
end

local function condition(template, kind, reason, message)
  local made = { type = kind, status = "True", reason = reason, message = message }
  local time = rules.time_of(template, made)
  made.lastProbeTime, made.lastTransitionTime = time, time
  return made
end

function AggregateStatus(template, items)
  local status = template.status or {}
  template.status = status
  if items == nil then
    status.startTime, status.completionTime = nil, nil
    status.replicaStatuses, status.conditions = {}, {}
    return template
  end
  local succeeded, failed = 0, {}
  for reported, cluster in rules.collected(items) do
    local how = ending(reported)
    if how == "Succeeded" then
      succeeded = succeeded + 1
    elseif how == "Failed" then
      table.insert(failed, cluster)
    end
  end
  local conditions = {}
  if #failed > 0 then
    local clusters = table.concat(failed, ", ")
    local message = "TFJob executed failed in member clusters: " .. clusters
    table.insert(conditions, condition(template, "Failed", "TFJobFailed", message))
  end
  if succeeded == #items and succeeded > 0 then
    local message = "TFJob completed successfully"
    table.insert(conditions, condition(template, "Succeeded", "Completed", message))
    status.completionTime = rules.latest(items, "completionTime")
  end
  status.startTime = rules.earliest(items, "startTime")
  status.lastReconcileTime = rules.latest(items, "lastReconcileTime")
  status.replicaStatuses = rules.replica_statuses(items, TYPES)
  status.conditions = conditions
  template.status = rules.without_zeros(status)
  return template
end
