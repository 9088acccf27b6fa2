local kube = require("kube")
local rules = require("rules")

-- A notebook is one pod.
function GetReplicas(object)
  return 1, kube.accuratePodRequirements(object.spec.template)
end

local BAD_ENDS = { Error = true, OOMKilled = true, ContainerCannotRun = true }

function InterpretHealth(observed)
  local state = rules.field(observed, "status", "containerState")
  if state == nil then
    return false
  end
  if state.running ~= nil then
    return true
  end
  if state.waiting ~= nil then
    return state.waiting.reason == "ContainerCreating"
  end
  local ended = state.terminated
  return ended ~= nil and (ended.exitCode or 0) == 0 and not BAD_ENDS[ended.reason or ""]
end

function ReflectStatus(observed)
  if observed.status == nil then
    return {}
  end
  local reported = rules.reflect(observed, { "readyReplicas", "containerState", "conditions" })
  reported.readyReplicas = reported.readyReplicas or 0
  return reported
end

local function condition(template, kind, reason, message)
  local made = { type = kind, status = "True", reason = reason, message = message }
  local time = rules.time_of(template, made)
  made.lastProbeTime, made.lastTransitionTime = time, time
  return made
end

function AggregateStatus(template, items)
  if items == nil then
    return template
  end
  if #items == 1 then
    template.status = items[1].status
    return template
  end
  local failed, running = {}, 0
  local broken, latest, started
  for status, cluster in rules.collected(items) do
    local state = status.containerState or {}
    if next(state) == nil then
      state = { waiting = { reason = "Unschedulable" } }
    end
    if state.terminated ~= nil or state.waiting ~= nil then
      table.insert(failed, cluster)
      broken = state
    elseif state.running ~= nil and #failed == 0 then
      running = running + 1
      local time = state.running.startedAt
      if latest == nil or (time ~= nil and (started == nil or time > started)) then
        latest, started = { running = { startedAt = time } }, time
      end
    end
  end
  local conditions = {}
  if #failed > 0 then
    local clusters = table.concat(failed, ", ")
    local message = "Notebook executed failed in member clusters: " .. clusters
    table.insert(conditions, condition(template, "Failed", "NotebookFailed", message))
  end
  if running == #items and running > 0 then
    table.insert(conditions, condition(template, "Ready", "Ready", "All notebooks are ready"))
  end
  template.status = {
    readyReplicas = rules.sum(items, "readyReplicas"),
    containerState = broken or latest,
    conditions = conditions,
  }
  return template
end
