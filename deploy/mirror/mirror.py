# Mirrors the verdicts of an old limiter, here of one that allows 3 requests of each user.
import json, urllib.request

def mirror(**verdict):
    request = urllib.request.Request("http://127.0.0.1:7910", json.dumps(verdict).encode(),
                                     {"Content-Type": "application/json"})
    try:
        urllib.request.urlopen(request, timeout=1).close()
    except OSError:
        pass  # without a mirror, all goes on as before

counts = {}

def old_limiter(user):
    counts[user] = counts.get(user, 0) + 1
    return counts[user] <= 3

for user in ["ann", "bob", "ann", "ann", "ann"]:
    allowed = old_limiter(user)
    mirror(key="user:" + user, rules=["login"], allowed=allowed)
    print(user, allowed)
