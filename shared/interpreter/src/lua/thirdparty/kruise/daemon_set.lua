local kube = require("kube")
local rules = require("rules")

local COUNTS = {
  "currentNumberScheduled", "desiredNumberScheduled", "updatedNumberScheduled",
  "numberMisscheduled", "numberReady", "numberAvailable", "numberUnavailable",
}

function InterpretHealth(observed)
  local status = observed.status
  return status.observedGeneration == observed.metadata.generation
    and status.updatedNumberScheduled >= status.desiredNumberScheduled
    and status.numberAvailable >= status.updatedNumberScheduled
end

function ReflectStatus(observed)
  return rules.reflect_generations(observed, {
    "currentNumberScheduled", "desiredNumberScheduled", "updatedNumberScheduled",
    "numberMisscheduled", "numberReady", "numberAvailable", "numberUnavailable",
    "observedGeneration", "daemonSetHash",
  })
end

function AggregateStatus(template, items)
  rules.prepare(template)
  rules.observe(template, items)
  rules.set_sums(template, items or {}, COUNTS)
  template.status.daemonSetHash = rules.last(items or {}, "daemonSetHash", 0)
  return template
end

function GetDependencies(object)
  return kube.getPodDependencies(object.spec.template, object.metadata.namespace)
end
