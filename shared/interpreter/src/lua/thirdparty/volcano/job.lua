local rules = require("rules")

local COUNTS = {
  "minAvailable", "pending", "running", "succeeded", "failed", "terminating", "unknown",
  "retryCount",
}
local HEALTHY = {
  Pending = true, Running = true, Restarting = true, Completing = true, Completed = true,
  Aborting = true, Aborted = true, Terminating = true, Terminated = true,
}
local BROKEN = {
  Failed = true, Aborting = true, Aborted = true, Terminating = true, Terminated = true,
}

function InterpretHealth(observed)
  local phase = rules.field(observed, "status", "state", "phase")
  return phase ~= nil and HEALTHY[phase] == true
end

function ReflectStatus(observed)
  return rules.reflect(observed, {
    "minAvailable", "pending", "running", "succeeded", "failed", "terminating", "unknown",
    "retryCount", "version", "runningDuration", "taskStatusCount", "controlledResources", "state",
    "conditions",
  })
end

function GetComponents(object)
  local components = {}
  for at, task in ipairs(rules.field(object, "spec", "tasks") or {}) do
    local name = rules.is_set(task.name) and task.name or "task-" .. (at - 1)
    local replicas = rules.number(task.minAvailable, 1)
    table.insert(components, rules.component(name, replicas, task.template))
  end
  return components
end

local SECONDS = { h = 3600, m = 60, s = 1 }

-- Seconds of a duration such as `1h2m3.5s`.
local function seconds(duration)
  if type(duration) == "number" then
    return duration
  end
  local total = 0
  for number, unit in string.gmatch(duration or "", "([%d%.]+)([hms])") do
    total = total + (tonumber(number) or 0) * SECONDS[unit]
  end
  return total
end

local function add_tasks(sums, tasks)
  for task, counts in pairs(tasks or {}) do
    sums[task] = sums[task] or { phase = {} }
    local phases = sums[task].phase
    for phase, count in pairs(counts.phase or {}) do
      phases[phase] = (phases[phase] or 0) + count
    end
  end
end

local function is_broken(conditions)
  for _, condition in ipairs(conditions or {}) do
    if BROKEN[condition.status] then
      return true
    end
  end
  return false
end

-- Those of the first member that is broken, or else the latest of each kind.
local function conditions_of(items)
  for status in rules.collected(items) do
    if is_broken(status.conditions) then
      return status.conditions
    end
  end
  return rules.newest_conditions(items, "status", function(one, other)
    return one.lastTransitionTime > other.lastTransitionTime
  end)
end

-- The state that all members make, if they make one.
local function state_of(template, items)
  local failed, completed = {}, 0
  for status, cluster in rules.collected(items) do
    local phase = rules.field(status, "state", "phase")
    if phase == "Completed" then
      completed = completed + 1
    elseif phase == "Failed" or phase == "Aborted" then
      table.insert(failed, cluster)
    end
  end
  local state = {}
  if #failed > 0 then
    state.phase = "Failed"
    state.reason = "VolcanoJobFailed"
    state.message = "Job failed in clusters: " .. table.concat(failed, ",")
  elseif completed == #items and completed > 0 then
    state.phase = "Completed"
    state.reason = "Completed"
    state.message = "Job completed successfully"
  else
    return nil
  end
  local known = rules.field(template, "status", "state") or {}
  if known.phase == state.phase and known.message == state.message then
    state.lastTransitionTime = known.lastTransitionTime
  end
  state.lastTransitionTime = state.lastTransitionTime or os.date("!%Y-%m-%dT%H:%M:%SZ")
  return state
end

function AggregateStatus(template, items)
  if items == nil then
    return template
  end
  if #items == 1 then
    template.status = items[1].status
    return template
  end
  local status = { taskStatusCount = {}, controlledResources = {}, version = 0 }
  for _, name in ipairs(COUNTS) do
    status[name] = rules.sum(items, name)
  end
  for reported in rules.collected(items) do
    status.version = math.max(status.version, reported.version or 0)
    if seconds(reported.runningDuration) > seconds(status.runningDuration) then
      status.runningDuration = reported.runningDuration
    end
    add_tasks(status.taskStatusCount, reported.taskStatusCount)
    for name, resource in pairs(reported.controlledResources or {}) do
      status.controlledResources[name] = resource
    end
  end
  status.state = state_of(template, items)
  status.conditions = conditions_of(items)
  template.status = rules.without_zeros(status)
  return template
end
