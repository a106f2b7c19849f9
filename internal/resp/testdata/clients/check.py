"""Talks to a node with redis-py, as its users would: see TestRedisPy."""
import os

import redis

# redis-py speaks RESP3 from its version 5 on.
versions = [{"protocol": 2}, {"protocol": 3}] if redis.VERSION >= (5,) else [{}]

for version in versions:
    key = f"py{version.get('protocol', '')}"
    client = redis.Redis(
        host=os.environ["HOST"], port=int(os.environ["PORT"]), username="default",
        password=os.environ["TOKEN"], ssl=True, ssl_ca_certs=os.environ["CA"],
        client_name="from-redis-py", decode_responses=True, **version)
    call = client.execute_command
    assert call("TT.ACQUIRE", key, "LIMIT", "30s", 2) == [1, 0, 1, 1]
    pipeline = client.pipeline(transaction=False)
    pipeline.execute_command("TT.ADD", key, "N", 3)
    pipeline.execute_command("TT.COUNT", key, "30s", "24h")
    pipeline.execute_command("TT.ACQUIRE", key, "LIMIT", "30s", 2)
    replies = pipeline.execute()
    assert replies in (["OK", [4, 4], [0, 30000, 4, 0]], [True, [4, 4], [0, 30000, 4, 0]]), replies
    try:
        call("TT.ADD", key, "N", "x")
    except redis.ResponseError as error:
        assert str(error).startswith("n: want 1 to 2147483647"), error
    else:
        raise AssertionError("it was accepted")
    # A pipeline is a transaction unless it is made otherwise.
    pipeline = client.pipeline()
    pipeline.execute_command("TT.ACQUIRE", key, "LIMIT", "30s", 5)
    pipeline.execute_command("TT.ACQUIRE", key, "LIMIT", "30s", 5)
    pipeline.execute_command("TT.COUNT", key, "30s")
    replies = pipeline.execute()
    assert replies == [[1, 0, 5, 0], [0, 30000, 5, 0], [5]], replies
    pipeline.execute_command("TT.ADD", key)
    pipeline.execute_command("TT.ADD", key, "N", "x")
    try:
        pipeline.execute()
    except redis.ResponseError as error:
        assert "n: want 1 to 2147483647" in str(error), error
    else:
        raise AssertionError("it was accepted")
    assert call("TT.COUNT", key, "30s") == [5]
    try:
        pipeline.watch(key)
    except redis.ResponseError as error:
        assert "no key can be watched" in str(error), error
    else:
        raise AssertionError("it was watched")
    pipeline.reset()
    assert client.ping()
print("ok")
