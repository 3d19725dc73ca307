-- What scripts see. Gets Rust's functions and gives back those that run a script, load a library and call a function of one.
--
-- A script runs in an environment of its own, so that it leaves nothing behind: names that it does not define are looked up
-- among the allowed functions, and new globals are refused. The libraries' tables are seen through proxies.

local native = ...
local error, setmetatable, setfenv, type, tostring = error, setmetatable, setfenv, type, tostring
local ipairs, pcall, xpcall, rawset, select, tonumber = ipairs, pcall, xpcall, rawset, select, tonumber
local pairs = pairs

local function refuse()
  error("Attempt to modify a readonly table", 2)
end

local proxies = setmetatable({}, { __mode = "k" })

-- What scripts are shown as the metatable of what they must not change.
local shown = setmetatable({}, { __newindex = refuse, __metatable = false })
proxies[shown] = true

local function locked(table)
  local proxy = setmetatable({}, { __index = table, __newindex = refuse, __metatable = shown })
  proxies[proxy] = true
  return proxy
end

local redis = native.redis

local function single(field)
  return function(...)
    local text = ...
    if select("#", ...) ~= 1 or type(text) ~= "string" then
      return { err = "ERR wrong number or type of arguments" }
    end
    return { [field] = text }
  end
end

redis.status_reply = single("ok")

local as_error = single("err")
function redis.error_reply(...)
  local reply = as_error(...)
  local text = reply.err:gsub("^%-", "")
  if not text:find(" ", 1, true) then text = "ERR " .. text end
  reply.err = text
  return reply
end

function redis.replicate_commands() return true end
function redis.set_repl() end

redis.REPL_NONE, redis.REPL_AOF, redis.REPL_SLAVE, redis.REPL_REPLICA, redis.REPL_ALL = 0, 1, 2, 2, 3
redis.LOG_DEBUG, redis.LOG_VERBOSE, redis.LOG_NOTICE, redis.LOG_WARNING = 0, 1, 2, 3

string.dump = nil

-- Lua's own patterns cannot be interrupted; Rust's can.
local substitute, substitutions = native.string.gsub, native.string.substitutions
string.find, string.match, string.gmatch = native.string.find, native.string.match, native.string.gmatch

local concat = table.concat
function string.gsub(text, pattern, replacement, count)
  local kind = type(replacement)
  if kind == "string" or kind == "number" then
    return substitute(text, pattern, replacement, count)
  end
  if kind ~= "function" and kind ~= "table" then
    error("bad argument #3 to 'gsub' (string/function/table expected)", 2)
  end
  local parts, length, replaced = {}, 0, 0
  local next_match, rest = substitutions(text, pattern, nil, count)
  local function add(before, whole, ...)
    if not before then return false end
    local value
    if kind == "function" then value = replacement(...) else value = replacement[(...)] end
    if not value then
      value = whole
    elseif type(value) ~= "string" and type(value) ~= "number" then
      error("invalid replacement value (a " .. type(value) .. ")", 3)
    end
    parts[length + 1], parts[length + 2] = before, value
    length, replaced = length + 2, replaced + 1
    return true
  end
  while add(next_match()) do end
  parts[length + 1] = rest()
  return concat(parts), replaced
end

-- It writes past what locks a table.
local insert = table.insert
function table.insert(list, ...)
  if proxies[list] then error("Attempt to modify a readonly table", 0) end
  if type(list) ~= "table" then
    error("bad argument #1 to 'insert' (table expected, got " .. (list == nil and "no value" or type(list)) .. ")", 2)
  end
  insert(list, ...)
end

-- Lua's own order cannot be interrupted either, unless it asks a function.
local sort, SORTED_AT_ONCE = table.sort, 10000
local function is_less(a, b) return a < b end
function table.sort(list, less)
  if less == nil and type(list) == "table" and #list > SORTED_AT_ONCE then less = is_less end
  return sort(list, less)
end

-- What goes over a long text, or makes one, looks at the watch.
local LONG = 65536

local function watched(name, original)
  local function ended(succeeded, result, ...)
    if not succeeded then
      if type(result) == "string" then
        result = substitute(result, "^(bad argument #%d+ to ')%?'", "%1" .. name .. "'")
      end
      error(result, 3)
    end
    if type(result) == "string" and #result > LONG then native.look() end
    return result, ...
  end
  return function(...) return ended(pcall(original, ...)) end
end

string.format, string.sub = watched("format", string.format), watched("sub", string.sub)
table.concat = watched("concat", concat)

for _, name in ipairs({ "upper", "lower", "reverse" }) do
  local original = string[name]
  string[name] = function(...)
    local text = ...
    if type(text) == "string" then
      if #text > LONG then native.look() end
    elseif type(text) ~= "number" then
      local given = select("#", ...) == 0 and "no value" or type(text)
      error("bad argument #1 to '" .. name .. "' (string expected, got " .. given .. ")", 2)
    end
    return original(text)
  end
end

-- One call is not interrupted, so it must not take long.
local rep = string.rep
function string.rep(text, count)
  if text == "" and tonumber(count) then return "" end
  if (type(text) == "string" or type(text) == "number") and #tostring(text) * (tonumber(count) or 0) > native.memory then
    error("not enough memory", 2)
  end
  local result = rep(text, count)
  if #result > LONG then native.look() end
  return result
end

getmetatable("").__index = locked(string)
getmetatable("").__metatable = false

-- Instructions that go over long texts, such as comparing them, cannot be interrupted either: where they leave much to be
-- collected, the interpreter is made to look at the watch more often.
local function look_when_collecting()
  local guard = newproxy(true)
  getmetatable(guard).__gc = function()
    native.pace()
    pcall(look_when_collecting)
  end
end
look_when_collecting()

-- What a script catches is a string, even if a command was refused.
local function caught(err)
  if type(err) == "userdata" then return (native.message(err)) end
  if type(err) == "table" and type(err.err) == "string" then return err.err end
  return err
end

-- A script that is to end catches nothing.
local function finish(succeeded, ...)
  if succeeded then return succeeded, ... end
  local stopped = native.stopped()
  if stopped then error(stopped, 0) end
  return succeeded, caught((...))
end

local allowed = {
  assert = assert, error = error, getmetatable = getmetatable, ipairs = ipairs, next = next, pairs = pairs,
  rawequal = rawequal, rawget = rawget, select = select,
  tonumber = tonumber, tostring = tostring, type = type, unpack = unpack,
  _VERSION = _VERSION,
  string = locked(string), table = locked(table), math = locked(math),
  redis = locked(redis), server = locked(redis),
  bit = locked(native.bit), cjson = locked(native.cjson),
  cmsgpack = locked(native.cmsgpack), struct = locked(native.struct),
}

function allowed.pcall(...)
  return finish(pcall(...))
end

-- The handler runs when the function is left: inside of it, where Lua would call it, it could not be stopped.
local function handled(handler, succeeded, ...)
  if succeeded then return succeeded, ... end
  local stopped = native.stopped()
  if stopped then error(stopped, 0) end
  local handles, value = pcall(handler, caught((...)))
  if handles then return false, value end
  stopped = native.stopped()
  if stopped then error(stopped, 0) end
  return false, "error in error handling"
end

function allowed.xpcall(f, handler)
  return handled(handler, pcall(f))
end

function allowed.setmetatable(...)
  if proxies[(...)] then refuse() end
  return setmetatable(...)
end

function allowed.rawset(table, name, value)
  if proxies[table] then refuse() end
  return rawset(table, name, value)
end

local function refuse_name(name)
  error("Script attempted to access nonexistent global variable '" .. tostring(name) .. "'", 3)
end

local globals = {
  __index = function(environment, name)
    if name == "_G" then return environment end
    local value = allowed[name]
    if value == nil then refuse_name(name) end
    return value
  end,
  __newindex = refuse,
  __metatable = shown,
}

local function located(err)
  local text
  if type(err) == "userdata" then
    local is_reply
    text, is_reply = native.message(err)
    if not is_reply then text = "ERR " .. text end
  elseif type(err) == "table" then
    text = type(err.err) == "string" and err.err or "ERR unknown error"
  else
    text = "ERR " .. tostring(err)
  end
  return { err = text, line = native.line() }
end

-- Gives whether the script ended well, and what it gave.
local function run(script, keys, argv, call, pcall, setresp, acl_check_cmd)
  local environment = { KEYS = keys, ARGV = argv }
  proxies[environment] = true
  setfenv(script, setmetatable(environment, globals))
  redis.call, redis.pcall, redis.setresp, redis.acl_check_cmd = call, pcall, setresp, acl_check_cmd
  return xpcall(script, located)
end

-- Gives whether the function of a library ended well, and what it gave.
local function invoke(callback, keys, argv, call, pcall, setresp, acl_check_cmd)
  redis.call, redis.pcall, redis.setresp, redis.acl_check_cmd = call, pcall, setresp, acl_check_cmd
  return xpcall(function() return callback(keys, argv) end, located)
end

-- What the library that is being loaded has registered; none is being loaded without it.
local registered

local function refuse_registration(text)
  error({ err = "ERR " .. text })
end

local PARTS = { function_name = true, callback = true, flags = true, description = true }

local function checked(entry)
  if entry.name == nil then refuse_registration("redis.register_function must get a function name argument") end
  if entry.callback == nil then refuse_registration("redis.register_function must get a callback argument") end
  local kind = type(entry.name)
  if kind ~= "string" and kind ~= "number" then
    refuse_registration("function_name argument given to redis.register_function must be a string")
  end
  entry.name = tostring(entry.name)
  if type(entry.callback) ~= "function" then
    refuse_registration("callback argument given to redis.register_function must be a function")
  end
  local description = entry.description
  if description ~= nil and type(description) ~= "string" and type(description) ~= "number" then
    refuse_registration("description argument given to redis.register_function must be a string")
  end
  entry.description = description ~= nil and tostring(description) or nil
  if entry.flags ~= nil and type(entry.flags) ~= "table" then
    refuse_registration("flags argument to redis.register_function must be a table representing function flags")
  end
  local flags = {}
  for position, flag in ipairs(entry.flags or {}) do
    if type(flag) ~= "string" or not native.flags[flag] then refuse_registration("unknown flag given") end
    flags[position] = flag
  end
  entry.flags = flags
  return entry
end

local function named(given)
  if type(given) ~= "table" then
    refuse_registration("calling redis.register_function with a single argument is only applicable to Lua table (representing named arguments).")
  end
  for part in pairs(given) do
    if not PARTS[part] then refuse_registration("unknown argument given to redis.register_function") end
  end
  return { name = given.function_name, callback = given.callback, flags = given.flags, description = given.description }
end

local function register_function(...)
  if registered == nil then
    refuse_registration("redis.register_function can only be called on FUNCTION LOAD command")
  end
  local count = select("#", ...)
  local first, second = ...
  local entry
  if count == 1 then
    entry = named(first)
  elseif count == 2 then
    if type(first) ~= "string" and type(first) ~= "number" then
      refuse_registration("first argument to redis.register_function must be a string")
    end
    if type(second) ~= "function" then
      refuse_registration("second argument to redis.register_function must be a function")
    end
    entry = { name = first, callback = second }
  else
    refuse_registration("wrong number of arguments to redis.register_function")
  end
  entry = checked(entry)
  native.check_name(entry.name)
  for _, known in ipairs(registered) do
    if known.name == entry.name then refuse_registration("Function already exists in the library") end
  end
  registered[#registered + 1] = entry
end

-- While a library is loaded, it can register functions and do nothing else, and finds nothing that is by chance.
local of_loading = {
  log = true, LOG_DEBUG = true, LOG_VERBOSE = true, LOG_NOTICE = true, LOG_WARNING = true,
  REDIS_VERSION = true, REDIS_VERSION_NUM = true,
}
local of_calls = { getmetatable = true, math = true }
local redis_of_libraries = setmetatable({}, {
  __index = function(_, name)
    if name == "register_function" then return register_function end
    if registered == nil then return redis[name] end
    if not of_loading[name] then refuse_name(name) end
    return redis[name]
  end,
  __newindex = refuse,
  __metatable = shown,
})
proxies[redis_of_libraries] = true

local globals_of_libraries = {
  __index = function(environment, name)
    if name == "_G" then return environment end
    local is_loading = registered ~= nil
    if is_loading and (name == "redis" or name == "server") then return redis_of_libraries end
    local value = allowed[name]
    if value == nil or is_loading and of_calls[name] then refuse_name(name) end
    return value
  end,
  __newindex = refuse,
  __metatable = shown,
}

-- Gives whether the library could be loaded, and what it has registered.
local function load_library(chunk)
  local environment = {}
  proxies[environment] = true
  setfenv(chunk, setmetatable(environment, globals_of_libraries))
  registered = {}
  local succeeded, refusal = xpcall(chunk, located)
  local entries = registered
  registered = nil
  if succeeded then return true, entries end
  return false, refusal
end

return run, load_library, invoke
