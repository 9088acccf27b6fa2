local rules = require("rules")

local REVISIONS = { "lastAttemptedRevision", "lastAppliedRevision" }

function InterpretHealth(observed)
  return rules.is_true(observed.status, "Ready", "ReconciliationSucceeded")
end

-- Whether a member pauses it is the member's own.
function Retain(desired, observed)
  if observed.spec.suspend ~= nil then
    desired.spec.suspend = observed.spec.suspend
  end
  return desired
end

function ReflectStatus(observed)
  return rules.reflect_generations(observed, {
    "conditions", "lastAppliedRevision", "lastAttemptedRevision", "observedGeneration",
  })
end

function AggregateStatus(template, items)
  rules.prepare(template)
  rules.observe(template, items)
  if items == nil then
    rules.set_all(template, REVISIONS, "")
    template.status.conditions = {}
    return template
  end
  for _, name in ipairs(REVISIONS) do
    template.status[name] = rules.last(items, name, template.status[name])
  end
  template.status.conditions = rules.merged_conditions(items)
  return template
end

function GetDependencies(object)
  local references = rules.references(object)
  local spec = object.spec
  references.add("Secret", rules.field(spec, "decryption", "secretRef", "name"))
  references.add("Secret", rules.field(spec, "kubeConfig", "secretRef", "name"))
  references.add("ServiceAccount", spec.serviceAccountName)
  return references.list
end
