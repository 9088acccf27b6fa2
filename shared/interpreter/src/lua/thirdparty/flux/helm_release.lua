local rules = require("rules")

local REVISIONS = {
  "lastAttemptedRevision", "lastAppliedRevision", "lastAttemptedValuesChecksum", "helmChart",
  "lastReleaseRevision",
}
local FAILURES = { "failures", "upgradeFailures", "installFailures" }

function InterpretHealth(observed)
  return rules.is_true(observed.status, "Ready", "ReconciliationSucceeded")
end

-- Whether a member pauses the release is the member's own.
function Retain(desired, observed)
  if observed.spec.suspend ~= nil then
    desired.spec.suspend = observed.spec.suspend
  end
  return desired
end

function ReflectStatus(observed)
  return rules.reflect_generations(observed, {
    "conditions", "observedGeneration", "lastAttemptedRevision", "lastAppliedRevision",
    "lastAttemptedValuesChecksum", "helmChart", "lastReleaseRevision", "failures",
    "upgradeFailures", "installFailures",
  })
end

function AggregateStatus(template, items)
  rules.prepare(template)
  rules.observe(template, items)
  local status = template.status
  if items == nil then
    rules.set_all(template, REVISIONS, "")
    rules.set_all(template, FAILURES, 0)
    status.conditions = {}
    return template
  end
  for _, name in ipairs(REVISIONS) do
    status[name] = rules.last(items, name, status[name])
  end
  for _, name in ipairs(FAILURES) do
    local sum = rules.sum(items, name)
    if status[name] ~= nil or sum > 0 then
      status[name] = sum
    end
  end
  status.conditions = rules.merged_conditions(items)
  return template
end

function GetDependencies(object)
  local references = rules.references(object)
  local spec = object.spec
  for _, source in ipairs(spec.valuesFrom or {}) do
    if source.kind == "Secret" or source.kind == "ConfigMap" then
      references.add(source.kind, source.name)
    end
  end
  references.add("Secret", rules.field(spec, "chart", "spec", "verify", "secretRef", "name"))
  references.add("Secret", rules.field(spec, "kubeConfig", "secretRef", "name"))
  references.add("ServiceAccount", spec.serviceAccountName)
  return references.list
end
