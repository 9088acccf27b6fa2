local rules = require("rules")

local COUNTS = { "active", "succeeded", "failed" }

-- Parts in the order of their names, so that the answer is the same every time.
function GetComponents(object)
  local specs = rules.field(object, "spec", "mpiReplicaSpecs") or {}
  local names = {}
  for name, spec in pairs(specs) do
    if spec.template ~= nil then
      table.insert(names, name)
    end
  end
  table.sort(names)
  local components = {}
  for _, name in ipairs(names) do
    -- Without workers the launcher runs alone.
    local default = string.lower(name) == "worker" and 0 or 1
    local replicas = rules.number(specs[name].replicas, default)
    table.insert(components, rules.component(name, replicas, specs[name].template))
  end
  return components
end

function InterpretHealth(observed)
  if #(rules.field(observed, "status", "conditions") or {}) == 0 then
    return false
  end
  return not rules.is_true(observed.status, "Failed")
end

function ReflectStatus(observed)
  local reported = rules.reflect(observed, {
    "conditions", "startTime", "completionTime", "lastReconcileTime",
  })
  reported.replicaStatuses = {}
  for name, counts in pairs(rules.field(observed, "status", "replicaStatuses") or {}) do
    reported.replicaStatuses[name] = {
      active = counts.active,
      succeeded = counts.succeeded,
      failed = counts.failed,
      selector = counts.selector,
    }
  end
  return reported
end

local function time_of(condition)
  return condition.lastUpdateTime or condition.lastTransitionTime or ""
end

-- The latest condition of each type; those without a time say nothing.
local function conditions_of(items)
  local conditions = rules.newest_conditions(items, "type", function(one, other)
    return time_of(one) > time_of(other)
  end)
  local timed = {}
  for _, condition in ipairs(conditions) do
    if time_of(condition) ~= "" then
      table.insert(timed, condition)
    end
  end
  return timed
end

function AggregateStatus(template, items)
  if items == nil then
    return template
  end
  if #items == 1 then
    template.status = items[1].status
    return template
  end
  local sums = {}
  for reported in rules.collected(items) do
    for name, counts in pairs(reported.replicaStatuses or {}) do
      sums[name] = sums[name] or { active = 0, succeeded = 0, failed = 0 }
      for _, count in ipairs(COUNTS) do
        sums[name][count] = sums[name][count] + (counts[count] or 0)
      end
    end
  end
  template.status = {
    replicaStatuses = sums,
    conditions = conditions_of(items),
    startTime = rules.earliest(items, "startTime"),
    completionTime = rules.latest(items, "completionTime"),
    lastReconcileTime = rules.latest(items, "lastReconcileTime"),
  }
  return template
end
