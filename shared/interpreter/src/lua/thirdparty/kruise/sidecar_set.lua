local rules = require("rules")

local COUNTS = { "matchedPods", "updatedPods", "readyPods" }

-- It runs inside of other pods and has none of its own.
function GetReplicas()
  return 0
end

function Retain(desired)
  return desired
end

function InterpretHealth(observed)
  local status = observed.status
  if status == nil then
    return false
  end
  local matched = status.matchedPods or 0
  return matched == 0 or (status.updatedPods or 0) == matched
end

function ReflectStatus(observed)
  local reported = {}
  if observed.status ~= nil then
    for _, name in ipairs(COUNTS) do
      reported[name] = observed.status[name] or 0
    end
  end
  return reported
end

function AggregateStatus(template, items)
  template.spec = nil
  template.status = {}
  rules.set_sums(template, items or {}, COUNTS)
  return template
end

function GetDependencies(object)
  local references = rules.references(object)
  local spec = object.spec or {}
  for _, container in ipairs(spec.containers or {}) do
    for _, variable in ipairs(container.env or {}) do
      local source = variable.valueFrom
      references.add("ConfigMap", rules.field(source, "configMapKeyRef", "name"))
      references.add("Secret", rules.field(source, "secretKeyRef", "name"))
    end
    for _, source in ipairs(container.envFrom or {}) do
      references.add("ConfigMap", rules.field(source, "configMapRef", "name"))
      references.add("Secret", rules.field(source, "secretRef", "name"))
    end
  end
  for _, volume in ipairs(spec.volumes or {}) do
    references.add("ConfigMap", rules.field(volume, "configMap", "name"))
    references.add("Secret", rules.field(volume, "secret", "secretName"))
    for _, source in ipairs(rules.field(volume, "projected", "sources") or {}) do
      references.add("ConfigMap", rules.field(source, "configMap", "name"))
      references.add("Secret", rules.field(source, "secret", "name"))
    end
  end
  return references.list
end
