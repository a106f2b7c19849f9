package resp

import (
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/verdicts"
)

// countVerdicts counts the verdicts of the executed acquires.
func (c *conn) countVerdicts(results []twotier.Result) {
	counters, recorder := c.server.opts.Verdicts, c.server.opts.Decisions
	if counters == nil && recorder == nil {
		return
	}
	run := verdicts.Begin(counters, verdicts.RESP)
	run.RecordTo(recorder)
	for i := range results {
		op, res := &c.work.ops[i], &results[i]
		if res.Err != nil || !verdicts.Decides(op) {
			continue
		}
		run.Decision()
		for j := range op.Checks {
			run.Check(&op.Checks[j], j, res, c.work.origins(i, j))
		}
	}
	if run.Decided() {
		run.End(time.Since(c.now))
	}
}
