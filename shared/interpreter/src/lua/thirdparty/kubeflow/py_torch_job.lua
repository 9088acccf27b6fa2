local rules = require("rules")

local TYPES = { "Master", "Worker" }

function GetComponents(object)
  return rules.replica_specs(rules.field(object, "spec", "pytorchReplicaSpecs"), TYPES)
end

function GetDependencies(object)
  local references = rules.references(object)
  for _, name in ipairs(TYPES) do
    references.add_pod(rules.field(object, "spec", "pytorchReplicaSpecs", name, "template"))
  end
  return references.list
end

function InterpretHealth(observed)
  if rules.field(observed, "status", "conditions") == nil then
    return false
  end
  return not rules.is_true(observed.status, "Failed")
end

local function condition(kind, status, reason, message, updated, changed)
  return {
    type = kind,
    status = status,
    reason = reason,
    message = message,
    lastUpdateTime = updated,
    lastTransitionTime = changed,
  }
end

function AggregateStatus(template, items)
  local status = template.status or {}
  template.status = status
  if items == nil then
    status.startTime, status.completionTime = nil, nil
    status.replicaStatuses, status.conditions = {}, {}
    return template
  end
  local created, succeeded, failed = 0, 0, {}
  local running
  for reported, cluster in rules.collected(items) do
    if rules.is_true(reported, "Failed") then
      table.insert(failed, cluster)
    elseif rules.is_true(reported, "Succeeded") then
      succeeded = succeeded + 1
    end
    if rules.is_true(reported, "Created") then
      created = created + 1
    end
    for _, one in ipairs(reported.conditions or {}) do
      if one.type == "Running" then
        running = one
      end
    end
  end
  local is_complete = succeeded == #items and succeeded > 0
  local started = rules.earliest(items, "startTime")
  local ended = rules.latest(items, "completionTime")
  local conditions = {}
  if created > 0 then
    local message = "PyTorchJob is created."
    local one = condition("Created", "True", "PyTorchJobCreated", message, started, started)
    table.insert(conditions, one)
  end
  if running ~= nil then
    local is_over = #failed > 0 or succeeded == #items
    local value = is_over and "False" or "True"
    local updated, changed = running.lastUpdateTime, running.lastTransitionTime
    local message = "PyTorchJob is running."
    local one = condition("Running", value, "PyTorchJobRunning", message, updated, changed)
    table.insert(conditions, one)
  end
  if #failed > 0 then
    local clusters = table.concat(failed, ", ")
    local message = "PyTorchJob executed failed in member clusters: " .. clusters
    local one = condition("Failed", "True", "PyTorchJobFailed", message, ended, ended)
    table.insert(conditions, one)
  elseif is_complete then
    local message = "PyTorchJob is successfully completed."
    local one = condition("Succeeded", "True", "PyTorchJobSucceeded", message, ended, ended)
    table.insert(conditions, one)
    status.completionTime = ended
  end
  status.startTime = started
  status.lastReconcileTime = rules.latest(items, "lastReconcileTime")
  status.replicaStatuses = rules.replica_statuses(items, TYPES)
  status.conditions = conditions
  template.status = rules.without_zeros(status)
  return template
end
