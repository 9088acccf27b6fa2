local rules = require("rules")

local FIELDS = { "ready", "conditions", "autogen", "rulecount" }
local COUNTS = { "validate", "generate", "mutate", "verifyimages" }

function InterpretHealth(observed)
  local ready = rules.field(observed, "status", "ready")
  if ready ~= nil then
    return ready
  end
  return rules.is_true(observed.status, "Ready", "Succeeded")
end

function ReflectStatus(observed)
  return rules.reflect(observed, FIELDS)
end

function AggregateStatus(template, items)
  if items == nil then
    return template
  end
  local status = { rulecount = {} }
  for _, name in ipairs(COUNTS) do
    status.rulecount[name] = 0
  end
  for reported in rules.collected(items) do
    status.autogen = reported.autogen or status.autogen
    if reported.ready ~= nil then
      status.ready = reported.ready
    end
    for _, name in ipairs(COUNTS) do
      local count = rules.field(reported, "rulecount", name) or 0
      status.rulecount[name] = status.rulecount[name] + count
    end
  end
  status.conditions = rules.merged_conditions(items)
  template.status = status
  return template
end
