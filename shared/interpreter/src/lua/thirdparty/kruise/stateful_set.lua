local kube = require("kube")
local rules = require("rules")

local COUNTS = {
  "replicas", "readyReplicas", "currentReplicas", "updatedReplicas", "availableReplicas",
  "updatedReadyReplicas",
}

function GetReplicas(object)
  return object.spec.replicas, kube.accuratePodRequirements(object.spec.template)
end

function ReviseReplica(object, replicas)
  object.spec.replicas = replicas
  return object
end

function InterpretHealth(observed)
  return rules.is_rolled_out(observed)
end

function ReflectStatus(observed)
  return rules.reflect_generations(observed, {
    "replicas", "readyReplicas", "currentReplicas", "updatedReplicas", "availableReplicas",
    "updatedReadyReplicas", "updateRevision", "currentRevision", "observedGeneration",
  })
end

function AggregateStatus(template, items)
  rules.prepare(template)
  rules.observe(template, items)
  rules.set_sums(template, items or {}, COUNTS)
  rules.set_last(template, items or {}, { "updateRevision", "currentRevision" }, "")
  return template
end

function GetDependencies(object)
  return kube.getPodDependencies(object.spec.template, object.metadata.namespace)
end
