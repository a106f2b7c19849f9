// Mirrors the verdicts of an old limiter, here of one that allows 3 requests of each user.
const mirror = (verdict) => fetch("http://127.0.0.1:7910", {
  method: "POST", body: JSON.stringify({ ts: Date.now(), ...verdict }),
  headers: { "Content-Type": "application/json" }, signal: AbortSignal.timeout(1000),
}).catch(() => {}); // without a mirror, all goes on as before

const counts = new Map();

function oldLimiter(user) {
  counts.set(user, (counts.get(user) ?? 0) + 1);
  return counts.get(user) <= 3;
}

for (const user of ["cid", "dan", "cid", "cid", "cid"]) {
  const allowed = oldLimiter(user);
  mirror({ key: `user:${user}`, rules: ["login"], allowed }); // nothing waits for it
  console.log(user, allowed);
}
