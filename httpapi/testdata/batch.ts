// Uses of the types that are generated from openapi.json: every operation of a batch has its own.
import type { components } from "./api";

type Batch = components["schemas"]["Batch"];

export const batch: Batch = {
  ops: [
    { op: "add", key: "user:42", n: -1, ts: 1767225600000 },
    { op: "count", key: "user:42", window: ["1m", "24h"] },
    { op: "acquire", key: "user:42", limits: [{ window: "1m", max: 15 }], dry_run: true },
    { op: "distinct", key: "user:42", values: ["device-7"], rules: ["devices"], window: "1h" },
    { op: "distinct", key: "user:42", window: ["1h", "24h"] },
    { op: "acquire", checks: [{ key: "ip:192.0.2.7", limits: [{ window: "1h", max: 100 }] }] },
  ],
};

// @ts-expect-error: a count has windows
export const noWindow: Batch = { ops: [{ op: "count", key: "user:42" }] };
// @ts-expect-error: there is no such operation
export const unknown: Batch = { ops: [{ op: "reset", key: "user:42" }] };
// @ts-expect-error: what is on different values has values or windows
export const neither: Batch = { ops: [{ op: "distinct", key: "user:42" }] };
// @ts-expect-error: an add has no windows
export const another: Batch = { ops: [{ op: "add", key: "user:42", window: "1m" }] };
