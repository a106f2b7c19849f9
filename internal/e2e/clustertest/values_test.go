package clustertest

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/internal/testing/proctest"
)

// TestValuesBesideEventsOfOtherOwners acquires values of a key and events of another, whose owners
// are two other nodes, in both modes: either both are counted or none.
func TestValuesBesideEventsOfOtherOwners(t *testing.T) {
	c := start(t, 3, "--admin-token", rulesToken)
	for _, mode := range []string{"two-tier", "redis"} {
		c.modeOf(0, mode)
		account, address := c.keyOf(1, "account-"+mode), c.keyOf(2, "address-"+mode)
		for i, step := range []struct {
			value, refused string
			values, events int64
		}{
			{"a", "", 1, 1}, {"b", "", 2, 2}, {"c", "checks[0].value_limits[0]", 2, 2},
			{"a", "", 2, 3}, {"c", "checks[0].value_limits[0] checks[1].limits[0]", 2, 3},
			{"b", "checks[1].limits[0]", 2, 3},
		} {
			var a struct {
				Allowed bool
				Refused []string `json:"refused_by"`
				Source  string
			}
			text := c.Nodes[0].MustPost("/v1/acquire", fmt.Sprintf(`{"checks":[{"key":%q,`+
				`"values":[%q],"value_limits":[{"window":"24h","max":2}]},{"key":%q,"limits":`+
				`[{"window":"24h","max":3}]}],"ack":"redis"}`, account, step.value, address))
			must.Succeed(t, json.Unmarshal(text, &a))
			if strings.Join(a.Refused, " ") != step.refused || a.Allowed != (step.refused == "") {
				t.Errorf("%s, step %d: %s, want %s", mode, i, text, step.refused)
			}
			c.hasDistinct(account, step.values, mode)
			proctest.UntilNil(t, "the events are counted", func() error {
				seen, err := c.Nodes[0].TryCount("key=" + address + "&window=24h")
				if err == nil && seen.Counts[0].Count != step.events {
					err = fmt.Errorf("%s, step %d: %+v, want %d", mode, i, seen, step.events)
				}
				return err
			})
		}
	}
}
