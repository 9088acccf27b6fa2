local kube = require("kube")
local rules = require("rules")

local COUNTS = {
  "replicas", "readyReplicas", "updatedReplicas", "availableReplicas", "unavailableReplicas",
}

function GetReplicas(object)
  return object.spec.replicas, kube.accuratePodRequirements(object.spec.template)
end

function ReviseReplica(object, replicas)
  object.spec.replicas = replicas
  return object
end

function InterpretHealth(observed)
  if observed.status == nil or observed.spec == nil then
    return false
  end
  return rules.is_rolled_out(observed)
end

function ReflectStatus(observed)
  return rules.reflect_generations(observed, {
    "replicas", "readyReplicas", "updatedReplicas", "availableReplicas", "unavailableReplicas",
    "observedGeneration", "conditions",
  })
end

function AggregateStatus(template, items)
  rules.prepare(template)
  rules.observe(template, items)
  rules.set_sums(template, items or {}, COUNTS)
  local function is_later()
    return true
  end
  local conditions = rules.newest_conditions(items or {}, "type", is_later)
  if #conditions > 0 then
    template.status.conditions = conditions
  end
  return template
end

function GetDependencies(object)
  return kube.getPodDependencies(object.spec.template, object.metadata.namespace)
end
