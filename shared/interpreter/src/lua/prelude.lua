-- Builds what a script sees. Only what is put into `base` or into a library below can be reached
-- by a script; everything else is out of its sight.
--
-- Arguments: functions of Rust.
local native = ...

local error, pcall, rawget, select, setfenv = error, pcall, rawget, select, setfenv
local setmetatable, tostring, type, unpack, xpcall = setmetatable, tostring, type, unpack, xpcall
local charge, charge_text, check = native.charge, native.charge_text, native.check
local format = string.format

local function forbidden(name)
  return function()
    error("the function " .. name .. " is not available to scripts", 2)
  end
end

-- Functions of strings: a text that is long costs instructions.
local function sized(call)
  return function(text, ...)
    if type(text) == "string" and #text > 1000 then
      charge_text(#text)
    end
    return call(text, ...)
  end
end

local strings = string
local string_find, string_match, string_step = native.find, native.match, native.step
local kept = { byte = string.byte, char = string.char, len = string.len }
for _, name in ipairs({ "lower", "upper", "reverse", "sub" }) do
  kept[name] = sized(string[name])
end
kept.byte = sized(kept.byte)

function kept.find(text, pattern, from, plain)
  return string_find(text, pattern, from, plain and true or false)
end

function kept.match(text, pattern, from)
  return string_match(text, pattern, from)
end

function kept.gmatch(text, pattern)
  local from = 1
  local function deliver(next, ...)
    from = next
    return ...
  end
  return function()
    if from then
      return deliver(string_step(text, pattern, from))
    end
  end
end
kept.gfind = kept.gmatch

-- `%s` takes any value, as in the Lua of Karmada.
function kept.format(pattern, ...)
  local count = select("#", ...)
  for at = 1, count do
    local kind = type((select(at, ...)))
    if kind ~= "string" and kind ~= "number" then
      local values = { ... }
      for one = 1, count do
        local value = values[one]
        if type(value) ~= "string" and type(value) ~= "number" then
          values[one] = tostring(value)
        end
      end
      return format(pattern, unpack(values, 1, count))
    end
  end
  return format(pattern, ...)
end

for _, name in ipairs({ "gsub", "rep", "dump" }) do
  kept[name] = forbidden("string." .. name)
end
for name in pairs(strings) do
  strings[name] = nil
end
for name, call in pairs(kept) do
  strings[name] = call
end

-- Functions of tables: those that touch every entry cost instructions.
local insert, remove, concat, sort = table.insert, table.remove, table.concat, table.sort
local maxn = table.maxn
local tables = {}

function tables.insert(list, ...)
  if select("#", ...) > 1 then
    -- The library itself moves entries from the end down to any position, however far below 1.
    local at = tonumber((...))
    if at and not (at >= 1 and at <= #list + 1) then
      error("bad argument #2 to 'insert' (position out of bounds)", 2)
    end
    charge(#list)
  end
  return insert(list, ...)
end

function tables.remove(list, ...)
  if select("#", ...) > 0 then
    charge(#list)
  end
  return remove(list, ...)
end

function tables.concat(list, ...)
  charge(#list)
  return concat(list, ...)
end

-- Without a comparison of the script's, the library compares without counting instructions.
local function before(a, b)
  return a < b
end

function tables.sort(list, comparison)
  charge(#list * 20)
  if comparison == nil then
    comparison = before
  end
  return sort(list, comparison)
end

function tables.maxn(list)
  charge(#list)
  return maxn(list)
end

function tables.getn(list)
  return #list
end

local maths = {}
for name, value in pairs(math) do
  maths[name] = value
end
function maths.randomseed() end

local os = { time = native.time, date = native.date }

local base = {
  _VERSION = _VERSION,
  assert = assert,
  error = error,
  ipairs = ipairs,
  next = next,
  pairs = pairs,
  select = select,
  tonumber = tonumber,
  type = type,
  unpack = unpack,
}

function base.print() end

-- Whole numbers are written with all their digits, as in the Lua of Karmada.
function base.tostring(...)
  local value = ...
  if type(value) == "number" and value % 1 == 0 then
    if (value >= 1e14 and value < 2 ^ 63) or (value <= -1e14 and value > -2 ^ 63) then
      return format("%.0f", value)
    end
  end
  return tostring(...)
end

-- A limit that was exceeded passes through every protected call.
function base.pcall(...)
  return check(pcall(...))
end

-- The handler runs after the call, not inside of its error: there Lua calls no hooks, and a handler
-- could run for ever.
local function handled(handler, fine, ...)
  if fine then
    return fine, ...
  end
  local _, value = check(pcall(handler, ...))
  return false, value
end

function base.xpcall(call, handler)
  return handled(handler, check(pcall(call)))
end

for _, name in ipairs({
  "collectgarbage", "dofile", "getfenv", "getmetatable", "load", "loadfile", "loadstring", "module",
  "newproxy", "rawequal", "rawget", "rawset", "setfenv", "setmetatable",
}) do
  base[name] = forbidden(name)
end

-- A script cannot change what the next one sees: it gets empty tables that look into the
-- libraries, and loses them with its environment.
local function view(library)
  return {
    __index = library,
    __newindex = function(_, name)
      error("a library cannot be changed: " .. tostring(name), 2)
    end,
  }
end
local string_view, table_view, math_view = view(strings), view(tables), view(maths)
local os_view, base_view = view(os), { __index = base }

local function environment(require)
  local globals = {
    string = setmetatable({}, string_view),
    table = setmetatable({}, table_view),
    math = setmetatable({}, math_view),
    os = setmetatable({}, os_view),
    require = require,
  }
  globals._G = globals
  return setmetatable(globals, base_view)
end

local handler, missing = native.handler, native.missing

-- Runs a script in a new environment and calls one of its functions.
local function run(script, require, name, first, second)
  local globals = environment(require)
  setfenv(script, globals)
  return xpcall(function()
    script()
    local entry = rawget(globals, name)
    if type(entry) ~= "function" then
      missing()
    end
    return entry(first, second)
  end, handler)
end

-- Runs a script in a new environment and looks whether it defines a function.
local function define(script, require, name)
  local globals = environment(require)
  setfenv(script, globals)
  return xpcall(function()
    script()
    if type(rawget(globals, name)) ~= "function" then
      missing()
    end
  end, handler)
end

return run, define, environment
