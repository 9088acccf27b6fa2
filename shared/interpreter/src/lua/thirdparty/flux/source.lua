-- The sources of Flux: GitRepository, Bucket, HelmChart, HelmRepository, OCIRepository. Each has
-- some of these fields.
local rules = require("rules")

local TEXTS = {
  Bucket = { "url" },
  GitRepository = {},
  HelmChart = { "url", "observedChartName", "observedSourceArtifactRevision" },
  HelmRepository = { "url" },
  OCIRepository = { "url" },
}
local REPORTED = {
  Bucket = { "url", "observedIgnore" },
  GitRepository = { "observedIgnore", "observedRecurseSubmodules" },
  HelmChart = { "url", "observedChartName", "observedSourceArtifactRevision" },
  HelmRepository = { "url" },
  OCIRepository = { "url", "observedIgnore", "observedLayerSelector" },
}
-- Fields of the spec that refer to a Secret.
local SECRETS = {
  Bucket = { { "secretRef" } },
  GitRepository = { { "secretRef" }, { "verify", "secretRef" } },
  HelmChart = { { "verify", "secretRef" } },
  HelmRepository = { { "secretRef" } },
  OCIRepository = { { "secretRef" }, { "verify", "secretRef" }, { "certSecretRef" } },
}

function InterpretHealth(observed)
  if observed.kind == "HelmChart" then
    return rules.is_true(observed.status, "Ready", "Succeeded", "ChartPullSucceeded")
  end
  return rules.is_true(observed.status, "Ready", "Succeeded")
end

-- Whether a member pauses it is the member's own.
function Retain(desired, observed)
  if observed.spec.suspend ~= nil then
    desired.spec.suspend = observed.spec.suspend
  end
  return desired
end

function ReflectStatus(observed)
  local names = { "artifact", "conditions", "observedGeneration" }
  for _, name in ipairs(REPORTED[observed.kind]) do
    table.insert(names, name)
  end
  return rules.reflect_generations(observed, names)
end

function AggregateStatus(template, items)
  rules.prepare(template)
  rules.observe(template, items)
  items = items or {}
  rules.set_last(template, items, TEXTS[template.kind], "")
  template.status.artifact = rules.last(items, "artifact")
  template.status.conditions = rules.merged_conditions(items)
  return template
end

function GetDependencies(object)
  local references = rules.references(object)
  for _, path in ipairs(SECRETS[object.kind]) do
    references.add("Secret", rules.field(rules.field(object.spec, unpack(path)), "name"))
  end
  if object.kind == "OCIRepository" then
    references.add("ServiceAccount", object.spec.serviceAccountName)
  end
  return references.list
end
