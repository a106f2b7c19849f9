// Package ask does for every endpoint what lies between a decoded request and the service that
// executes it: it adds the limits of rules, checks bounds and permissions, lays out operations in
// reusable memory, and counts the verdicts on them. An endpoint keeps its protocol.
//
// A [Request] assembles operations:
//
//	r.BeginOp()
//	r.BeginCheck()
//	r.AddLimit(limit, text)       // of the request itself, and
//	r.AddNamedRule(name)          // of rules, in any order
//	limits, bans, failure := r.PrepareCheck(&check, kind)
//	r.EndCheck(&check, kind)      // once there is room for so many limits and bans of rules
//	r.EndOp(&op, tag)
//	r.Link()
//	results := r.EmptyResults()   // for Service.Do or DoAll with r.Ops
//
// Failures are of type *[request.Failure]; nil means success. Their fields are relative to the
// check. A Request is for one goroutine.
package ask
