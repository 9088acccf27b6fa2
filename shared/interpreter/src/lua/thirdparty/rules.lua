-- Functions that the rules for kinds of other projects share.

local kube = require("kube")

local rules = {}

local TEMPLATE_GENERATION = "resourcetemplate.karmada.io/generation"

-- The field below an object, or nil where one on the way is missing.
function rules.field(object, ...)
  for at = 1, select("#", ...) do
    if type(object) ~= "table" then
      return nil
    end
    object = object[(select(at, ...))]
  end
  return object
end

local field = rules.field

function rules.is_set(value)
  return value ~= nil and value ~= ""
end

local is_set = rules.is_set

-- A number, also where it is written as text.
function rules.number(value, default)
  return is_set(value) and tonumber(value) or default
end

-- === status of one member ===

-- The given fields of the status.
function rules.reflect(observed, names)
  local reported = {}
  local status = observed.status or {}
  for _, name in ipairs(names) do
    reported[name] = status[name]
  end
  return reported
end

-- The same, with the generations that tell whether the member has seen the present template.
function rules.reflect_generations(observed, names)
  local reported = rules.reflect(observed, names)
  if observed.status ~= nil then
    reported.generation = field(observed, "metadata", "generation")
    local generation = field(observed, "metadata", "annotations", TEMPLATE_GENERATION)
    reported.resourceTemplateGeneration = rules.number(generation)
  end
  return reported
end

-- Whether a condition is True, for one of the reasons if any are given.
function rules.is_true(status, kind, ...)
  for _, condition in ipairs(field(status, "conditions") or {}) do
    if condition.type == kind and condition.status == "True" then
      if select("#", ...) == 0 then
        return true
      end
      for at = 1, select("#", ...) do
        if condition.reason == select(at, ...) then
          return true
        end
      end
    end
  end
  return false
end

-- Whether all pods run the present template and are available. An error without counts.
function rules.is_rolled_out(observed)
  local status = observed.status
  if status.observedGeneration ~= observed.metadata.generation then
    return false
  end
  local wanted = observed.spec.replicas
  if wanted ~= nil and status.updatedReplicas < wanted then
    return false
  end
  return status.availableReplicas >= status.updatedReplicas
end

-- === status of all members ===

-- Statuses that were collected, each with the name of its cluster.
function rules.collected(items)
  local at = 0
  return function()
    repeat
      at = at + 1
    until items[at] == nil or items[at].status ~= nil
    if items[at] ~= nil then
      return items[at].status, items[at].clusterName
    end
  end
end

local collected = rules.collected

-- The sum of a field.
function rules.sum(items, name)
  local total = 0
  for status in collected(items) do
    total = total + (status[name] or 0)
  end
  return total
end

function rules.set_sums(template, items, names)
  for _, name in ipairs(names) do
    template.status[name] = rules.sum(items, name)
  end
end

function rules.set_all(template, names, value)
  for _, name in ipairs(names) do
    template.status[name] = value
  end
end

-- The field of the last member that has it.
function rules.last(items, name, default)
  local found = default
  for status in collected(items) do
    if is_set(status[name]) then
      found = status[name]
    end
  end
  return found
end

function rules.set_last(template, items, names, default)
  for _, name in ipairs(names) do
    template.status[name] = rules.last(items, name, default)
  end
end

-- The latest, or the earliest, time that any member has in a field.
function rules.latest(items, name)
  local found
  for status in collected(items) do
    local time = status[name]
    if is_set(time) and (found == nil or time > found) then
      found = time
    end
  end
  return found
end

function rules.earliest(items, name)
  local found
  for status in collected(items) do
    local time = status[name]
    if is_set(time) and (found == nil or time < found) then
      found = time
    end
  end
  return found
end

-- Prepares the status of a template that counts generations.
function rules.prepare(template)
  template.status = template.status or {}
  template.metadata.generation = template.metadata.generation or 0
  template.status.observedGeneration = template.status.observedGeneration or 0
end

-- The template is observed when every member has observed a copy of its present generation. Without
-- members it always is.
function rules.observe(template, items)
  local generation = template.metadata.generation
  for _, item in ipairs(items or {}) do
    local status = item.status or {}
    local is_present = (status.resourceTemplateGeneration or 0) == generation
    if not is_present or (status.generation or 0) ~= (status.observedGeneration or 0) then
      return
    end
  end
  template.status.observedGeneration = generation
end

-- Conditions of all members. Those that agree in type, status and reason are one, whose message
-- says what each cluster says.
function rules.merged_conditions(items)
  local merged = {}
  for status, cluster in collected(items) do
    for _, condition in ipairs(status.conditions or {}) do
      local message = cluster .. "=" .. (condition.message or "")
      local same
      for _, one in ipairs(merged) do
        if one.type == condition.type and one.status == condition.status then
          if one.reason == condition.reason then
            same = one
            break
          end
        end
      end
      if same then
        same.message = same.message .. ", " .. message
      else
        condition.message = message
        table.insert(merged, condition)
      end
    end
  end
  return merged
end

-- Of all conditions with the same value of a field the one that `is_newer` prefers, in the order in
-- which the values were met. A condition without the field says nothing.
function rules.newest_conditions(items, name, is_newer)
  local order, newest = {}, {}
  for status in collected(items) do
    for _, condition in ipairs(status.conditions or {}) do
      local key = condition[name]
      if key ~= nil then
        local known = newest[key]
        if known == nil then
          table.insert(order, key)
        end
        if known == nil or is_newer(condition, known) then
          newest[key] = condition
        end
      end
    end
  end
  local conditions = {}
  for _, key in ipairs(order) do
    table.insert(conditions, newest[key])
  end
  return conditions
end

-- Time of a condition: that of the same condition of the template, or now. A time that changed with
-- every aggregation would make each of them a change.
function rules.time_of(template, condition)
  for _, known in ipairs(field(template, "status", "conditions") or {}) do
    if known.type == condition.type and known.message == condition.message then
      if known.status == condition.status and is_set(known.lastTransitionTime) then
        return known.lastTransitionTime
      end
    end
  end
  return os.date("!%Y-%m-%dT%H:%M:%SZ")
end

-- A copy without empty texts, empty tables, zeros and durations of zero.
function rules.without_zeros(value)
  if type(value) ~= "table" then
    return value
  end
  local kept = {}
  local is_list = #value > 0
  local walk = is_list and ipairs or pairs
  for key, one in walk(value) do
    one = rules.without_zeros(one)
    local is_zero = one == 0 or one == "" or one == "0s"
    if not is_zero and not (type(one) == "table" and next(one) == nil) then
      -- A list must have no gaps.
      kept[is_list and #kept + 1 or key] = one
    end
  end
  return kept
end

-- === replicas and components ===

-- A component, unless its template is missing and `is_optional`.
function rules.component(name, replicas, template)
  local needs
  if template ~= nil then
    needs = kube.accuratePodRequirements(template)
  end
  return { name = name, replicas = replicas, replicaRequirements = needs }
end

-- Head and worker groups of a Ray cluster.
function rules.ray_components(cluster)
  local components = {}
  local head = field(cluster, "headGroupSpec", "template")
  if head ~= nil then
    table.insert(components, rules.component("ray-head", 1, head))
  end
  for at, group in ipairs(field(cluster, "workerGroupSpecs") or {}) do
    local name = is_set(group.groupName) and group.groupName or "worker-" .. at
    table.insert(components, rules.component(name, group.replicas or 0, group.template))
  end
  return components
end

-- Constraints on nodes that a part of a pod spec has.
function rules.add_constraints(needs, pod, affinity)
  pod = pod or {}
  local claim = {
    nodeSelector = pod.nodeSelector,
    tolerations = pod.tolerations,
    hardNodeAffinity = affinity,
  }
  if next(claim) ~= nil then
    needs.nodeClaim = claim
  end
  if is_set(pod.priorityClassName) then
    needs.priorityClassName = pod.priorityClassName
  end
end

-- === dependencies ===

-- Collects references to objects in the namespace of an object.
function rules.references(object)
  local namespace = field(object, "metadata", "namespace")
  local list, known = {}, {}
  local found = { list = list }
  -- Adds a reference; a name that is missing is none.
  function found.add(kind, name)
    local key = kind .. "/" .. tostring(name)
    if is_set(name) and not known[key] then
      known[key] = true
      table.insert(list, { apiVersion = "v1", kind = kind, namespace = namespace, name = name })
    end
  end
  -- Adds what the pods of a template need.
  function found.add_pod(template)
    for _, one in ipairs(template and kube.getPodDependencies(template, namespace) or {}) do
      found.add(one.kind, one.name)
    end
  end
  return found
end

-- Reads a set of replicas by type, as the jobs of Kubeflow have it.
function rules.replica_specs(specs, types)
  local components = {}
  for _, name in ipairs(types) do
    local spec = field(specs, name)
    if spec ~= nil then
      local replicas = rules.number(spec.replicas, 1)
      table.insert(components, rules.component(string.lower(name), replicas, spec.template))
    end
  end
  return components
end

-- Counts of replicas by type, of all members.
function rules.replica_statuses(items, types)
  local sums = {}
  for _, name in ipairs(types) do
    sums[name] = { active = 0, failed = 0, succeeded = 0 }
  end
  for status in collected(items) do
    for name, counts in pairs(status.replicaStatuses or {}) do
      local sum = sums[name]
      if sum ~= nil then
        for count, value in pairs(sum) do
          sum[count] = value + (counts[count] or 0)
        end
      end
    end
  end
  return sums
end

return rules
