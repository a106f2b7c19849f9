package clustertest

import (
	"fmt"
	"testing"

	"twotier.dev/twotier/internal/testing/must"
)

// TestAChargeDuringABan charges keys of two owners, of which one is banned, through each of three
// nodes, alone and in a batch, in memory and in Redis. Each charge is refused because of the ban,
// and counted for both keys.
func TestAChargeDuringABan(t *testing.T) {
	c := start(t, 3, "--admin-token", rulesToken)
	c.putRules(0, 0, banRules)
	c.haveRules(1)
	outlaw, free := c.keyOf(1, "user=outlaw"), c.keyOf(2, "user=free")
	until := c.breach(0, outlaw)
	charge := fmt.Sprintf(`{"charge":true,"ack":"redis","checks":[{"key":%q,"n":5,`+
		`"rules":["login"]},{"key":%q,"n":7,"limits":[{"window":"24h","max":1000}]}]}`, outlaw,
		free)
	charged := int64(0)
	for _, mode := range []string{"two-tier", "redis"} {
		c.modeOf(0, mode)
		for _, i := range c.Running() {
			var batch struct{ Results []banned }
			batch.Results = make([]banned, 1)
			must.Succeed(t, c.Nodes[i].Ask("/v1/acquire", charge, &batch.Results[0]))
			one := batch.Results[0]
			must.Succeed(t, c.Nodes[i].Ask("/v1/batch",
				`{"ops":[{"op":"acquire",`+charge[1:]+`]}`, &batch))
			for _, a := range append(batch.Results, one) {
				charged++
				if a.Allowed || len(a.Bans) != 1 || a.Bans[0].Started || a.Bans[0].Until != until {
					t.Errorf("%s, node %d: %+v, want a ban until %d", mode, i, a, until)
				}
			}
			// The breach has counted two events.
			if n, m := c.Nodes[i].Count(outlaw, "24h").Counts[0].Count,
				c.Nodes[i].Count(free, "24h").Counts[0].Count; n != 2+5*charged ||
				m != 7*charged {
				t.Fatalf("%s, node %d: %d and %d are counted after %d charges", mode, i, n, m,
					charged)
			}
		}
	}
}
