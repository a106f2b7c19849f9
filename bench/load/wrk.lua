-- Adds to keys drawn evenly from those that were prepared: making a request anew each time would cost more than wrk itself.
local prepared, next = {}, 0

function init(args)
  for i = 1, tonumber(args[1]) do
    local key = string.format("%016x", i)
    prepared[i] = wrk.format("POST", "/v1/add", {["Content-Type"] = "application/json"}, '{"key":"' .. key .. '"}')
  end
end

function request()
  return prepared[math.random(#prepared)]
end

function done(summary, latency)
  local e = summary.errors
  io.write(string.format(
    '\nresult {"requests":%d,"us":%d,"errors":%d,"p50":%d,"p90":%d,"p99":%d,"p999":%d,"max":%d,"mean":%f}\n',
    summary.requests, summary.duration, e.connect + e.read + e.write + e.status + e.timeout,
    latency:percentile(50), latency:percentile(90), latency:percentile(99), latency:percentile(99.9),
    latency.max, latency.mean))
end
