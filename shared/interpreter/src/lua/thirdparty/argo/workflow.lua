local kube = require("kube")
local rules = require("rules")

function GetReplicas(object)
  local spec = object.spec
  local pod = {
    affinity = spec.affinity,
    nodeSelector = spec.nodeSelector,
    tolerations = spec.tolerations,
  }
  return spec.parallelism or 1, kube.accuratePodRequirements({ spec = pod })
end

function ReviseReplica(object, replicas)
  object.spec.parallelism = replicas
  return object
end

-- The member's controller writes how far the workflow is.
function Retain(desired, observed)
  if observed.spec.suspend ~= nil then
    desired.spec.suspend = observed.spec.suspend
  end
  if observed.status ~= nil then
    desired.status = observed.status
  end
  return desired
end

function InterpretHealth(observed)
  local phase = rules.field(observed, "status", "phase")
  return rules.is_set(phase) and phase ~= "Error" and phase ~= "Failed"
end

function GetDependencies(object)
  local references = rules.references(object)
  local spec = object.spec
  references.add("ServiceAccount", rules.field(spec, "executor", "serviceAccountName"))
  for _, claim in ipairs(spec.volumeClaimTemplates or {}) do
    references.add("PersistentVolumeClaim", rules.field(claim, "metadata", "name"))
  end
  local pod = {
    volumes = spec.volumes,
    imagePullSecrets = spec.imagePullSecrets,
    serviceAccountName = spec.serviceAccountName,
  }
  references.add_pod({ spec = pod })
  return references.list
end
