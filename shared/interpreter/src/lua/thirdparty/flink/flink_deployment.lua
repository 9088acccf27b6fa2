local kube = require("kube")
local rules = require("rules")

local FIELDS = {
  "clusterInfo", "error", "jobManagerDeploymentStatus", "jobStatus", "lifecycleState",
  "observedGeneration", "reconciliationStatus", "taskManager",
}

-- States that a job keeps, or leaves by itself for one that it keeps. A job that has failed is not
-- helped by another cluster.
local SETTLED = {
  RUNNING = true, FINISHED = true, FAILED = true, CANCELED = true, SUSPENDED = true,
  CANCELLING = true, FAILING = true, RESTARTING = true,
}
local STARTING = { CREATED = true, INITIALIZING = true, RECONCILING = true }
-- Errors that the user has made, and that follow the job to every cluster.
local OWN_ERRORS = { "ErrImagePull", "ImagePullBackOff", "CrashLoopBackOff" }

function InterpretHealth(observed)
  local status = observed.status or {}
  local state = rules.field(status, "jobStatus", "state")
  if state == nil then
    return status.jobManagerDeploymentStatus == "READY" and status.lifecycleState == "STABLE"
  end
  if STARTING[state] then
    for _, name in ipairs(OWN_ERRORS) do
      if string.find(status.error or "", name, 1, true) then
        return true
      end
    end
    return false
  end
  return SETTLED[state] == true
end

function ReflectStatus(observed)
  return rules.reflect(observed, FIELDS)
end

-- The job runs in one cluster at a time: what the last one says counts.
function AggregateStatus(template, items)
  if items == nil then
    return template
  end
  local found = {
    error = "",
    jobManagerDeploymentStatus = "",
    lifecycleState = "",
    observedGeneration = 0,
  }
  for status in rules.collected(items) do
    found = status
  end
  template.status = template.status or {}
  for _, name in ipairs(FIELDS) do
    template.status[name] = found[name]
  end
  return template
end

-- Number of task managers: what is asked for, or as many as the slots of the job need.
local function task_managers(spec)
  local wanted = rules.number(rules.field(spec, "taskManager", "replicas"))
  if wanted ~= nil then
    return wanted
  end
  local parallelism = rules.number(rules.field(spec, "job", "parallelism"))
  local slots = rules.field(spec, "flinkConfiguration", "taskmanager.numberOfTaskSlots")
  slots = rules.number(slots, 0)
  if parallelism == nil or slots == 0 then
    return 1
  end
  return math.ceil(parallelism / slots)
end

local function job_managers(spec)
  return rules.number(rules.field(spec, "jobManager", "replicas"), 1)
end

local function component(name, replicas, resource, pod)
  local request = { cpu = rules.field(resource, "cpu") }
  local memory = rules.field(resource, "memory")
  if memory ~= nil then
    request.memory = kube.getResourceQuantity(memory)
  end
  local needs = { resourceRequest = request }
  rules.add_constraints(needs, pod)
  return { name = name, replicas = replicas, replicaRequirements = needs }
end

function GetComponents(object)
  local spec = object.spec or {}
  local pod = rules.field(spec, "podTemplate", "spec")
  local job, task = rules.field(spec, "jobManager"), rules.field(spec, "taskManager")
  return {
    component("jobmanager", job_managers(spec), rules.field(job, "resource"), pod),
    component("taskmanager", task_managers(spec), rules.field(task, "resource"), pod),
  }
end

-- The larger of two, of which either may be missing.
local function larger(one, other, measure)
  if one == nil or other == nil then
    return one or other
  end
  return measure(one) > measure(other) and one or other
end

function GetReplicas(object)
  local spec = object.spec or {}
  local job = rules.field(spec, "jobManager", "resource") or {}
  local task = rules.field(spec, "taskManager", "resource") or {}
  local needs = {
    namespace = rules.field(object, "metadata", "namespace"),
    resourceRequest = {
      cpu = larger(job.cpu, task.cpu, tonumber),
      memory = larger(job.memory, task.memory, kube.getResourceQuantity),
    },
  }
  rules.add_constraints(needs, rules.field(spec, "podTemplate", "spec"))
  return job_managers(spec) + task_managers(spec), needs
end
