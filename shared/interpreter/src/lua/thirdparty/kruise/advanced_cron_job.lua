local rules = require("rules")

function AggregateStatus(template, items)
  if items == nil then
    return template
  end
  local status = template.status or {}
  template.status = status
  status.active = {}
  for reported in rules.collected(items) do
    for _, job in ipairs(reported.active or {}) do
      table.insert(status.active, job)
    end
  end
  status.type = rules.last(items, "type", "")
  status.lastScheduleTime = rules.last(items, "lastScheduleTime")
  return template
end

function GetDependencies(object)
  local references = rules.references(object)
  local templates = object.spec.template
  local job = templates.broadcastJobTemplate or templates.jobTemplate
  references.add_pod(rules.field(job, "spec", "template"))
  return references.list
end
