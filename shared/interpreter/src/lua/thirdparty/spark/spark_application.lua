local rules = require("rules")

-- The worse of two states has the higher number.
local STATES = {
  SUBMITTED = 1, PENDING_RERUN = 1, COMPLETED = 2, SUSPENDING = 3, SUSPENDED = 3, RUNNING = 4,
  RESUMING = 4, SUCCEEDING = 4, INVALIDATING = 5, FAILING = 6, FAILED = 6, SUBMISSION_FAILED = 6,
}

function InterpretHealth(observed)
  local state = rules.field(observed, "status", "applicationState", "state")
  return state ~= nil and state ~= "FAILED"
end

function ReflectStatus(observed)
  return rules.reflect(observed, {
    "applicationState", "driverInfo", "executorState", "sparkApplicationId", "submissionID",
    "lastSubmissionAttemptTime", "submissionAttempts", "executionAttempts", "terminationTime",
  })
end

function AggregateStatus(template, items)
  if items == nil then
    return template
  end
  if #items == 1 then
    template.status = items[1].status
    return template
  end
  local worst
  local executors = {}
  for reported in rules.collected(items) do
    local state = reported.applicationState
    if state ~= nil then
      if worst == nil or (STATES[state.state] or 0) > (STATES[worst.state] or 0) then
        worst = state
      end
    end
    for name, one in pairs(reported.executorState or {}) do
      executors[name] = one
    end
  end
  local status = template.status or {}
  template.status = status
  rules.set_sums(template, items, { "executionAttempts", "submissionAttempts" })
  status.applicationState = worst
  status.executorState = executors
  status.lastSubmissionAttemptTime = rules.latest(items, "lastSubmissionAttemptTime") or ""
  status.terminationTime = rules.latest(items, "terminationTime") or ""
  return template
end

-- === components ===

-- Units of memory as the JVM writes them, from the smallest, and as Kubernetes does.
local UNITS = { "b", "k", "m", "g", "t", "p" }
local SUFFIXES = { "", "Ki", "Mi", "Gi", "Ti", "Pi" }
-- Unit of a number without one, as in Spark.
local MEBIBYTES = 3
-- Least memory beside the heap, in mebibytes.
local LEAST_OVERHEAD = 384

-- Number and index of the unit.
local function memory_of(text)
  local number, unit = string.match(string.lower(tostring(text)), "^(%d+%.?%d*)([a-z]*)$")
  for at, name in ipairs(UNITS) do
    if unit == name or unit == name .. "b" then
      return tonumber(number), at
    end
  end
  if unit == "" then
    return tonumber(number), MEBIBYTES
  end
  error("memory " .. tostring(text) .. " is no number with a unit of the JVM")
end

local function in_unit(number, from, to)
  return number * 1024 ^ (from - to)
end

-- Heap and overhead together, in the smaller of their units.
local function total_memory(heap, overhead, factor)
  local number, unit = memory_of(heap)
  local more, more_unit
  if overhead ~= nil then
    more, more_unit = memory_of(overhead)
  else
    more_unit = math.min(unit, MEBIBYTES)
    local share = in_unit(number * factor, unit, more_unit)
    more = math.max(share, in_unit(LEAST_OVERHEAD, MEBIBYTES, more_unit))
  end
  local common = math.min(unit, more_unit)
  local sum = in_unit(number, unit, common) + in_unit(more, more_unit, common)
  return string.format("%f", sum) .. SUFFIXES[common]
end

local function component(name, replicas, pod, factor)
  pod = pod or {}
  local request = {
    cpu = pod.cores or 1,
    memory = total_memory(pod.memory or "1g", pod.memoryOverhead, factor),
  }
  local gpu = pod.gpu or {}
  local count = rules.number(gpu.quantity, 0)
  if rules.is_set(gpu.name) and count > 0 then
    request[gpu.name] = count
  end
  local needs = { resourceRequest = request }
  local affinity = rules.field(pod, "affinity", "nodeAffinity")
  rules.add_constraints(
    needs,
    pod,
    rules.field(affinity, "requiredDuringSchedulingIgnoredDuringExecution")
  )
  return { name = name, replicas = replicas, replicaRequirements = needs }
end

-- Executors that run at first.
local function executors(spec)
  local count = rules.number(rules.field(spec, "executor", "instances"), 1)
  local dynamic = spec.dynamicAllocation or {}
  if dynamic.enabled then
    local first = rules.number(dynamic.initialExecutors, 1)
    count = math.max(count, first, rules.number(dynamic.minExecutors, 1))
  end
  return count
end

function GetComponents(object)
  local spec = object.spec
  local language = string.lower(spec.type)
  -- Other languages need more memory outside of the heap.
  local default = (language == "java" or language == "scala") and 0.1 or 0.4
  local factor = rules.number(spec.memoryOverheadFactor, default)
  return {
    component("driver", 1, spec.driver, factor),
    component("executor", executors(spec), spec.executor, factor),
  }
end
