package acceptance

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"twotier.dev/twotier"
)

// TestOpenHoldsAreRead reads how many are open and when the next one ends, while holds are made,
// settled, renewed and over. A dry run counts itself among the open ones.
func TestOpenHoldsAreRead(t *testing.T) {
	each(t, true, func(t *testing.T, b *bed) {
		const body = `{"key":"ann","n":0,"limits":[{"concurrent":2},{"window":"1h","max":9}],
			"hold":"10s"`
		open := func(want, end int64) {
			t.Helper()
			a := b.get("/v1/holds", "key", "ann")
			if end > 0 {
				end -= b.now()
			}
			if a.Status != http.StatusOK || a.Key != "ann" || a.Open != want || a.NextEnd != end {
				t.Errorf("%+v, want %d, the next in %d", a, want, end)
			}
		}
		open(0, 0)
		end := twotier.LeaseEnd(b.now(), 10_000)
		first := b.hold(body + "}")
		open(1, end)
		if a := b.ok("/v1/acquire", body+`,"dry_run":true}`); !a.Allowed ||
			a.Limits[1].Open != 2 || a.Limits[1].Refused {
			t.Errorf("dry run of the second: %+v", a)
		}
		b.mono.Add(int64(time.Second))
		second := twotier.LeaseEnd(b.now(), 10_000)
		b.hold(body + "}")
		if a := b.ok("/v1/acquire", body+`,"dry_run":true}`); a.Allowed || a.Limits[1].Open != 2 ||
			!a.Limits[1].Refused {
			t.Errorf("dry run of the third: %+v", a)
		}
		open(2, end)
		renewed := b.ok("/v1/renew", fmt.Sprintf(`{"hold":%q,"for":"1m"}`, first))
		open(2, second)
		b.to(second - 1)
		open(2, second)
		b.to(second)
		open(1, renewed.Until)
		if a := b.get("/v1/top", "by", "concurrent"); len(a.Keys) != 1 || a.Keys[0].Key != "ann" ||
			a.Keys[0].Count != 1 {
			t.Errorf("%+v", a)
		}
		for i := range 2 {
			s := b.settle(fmt.Sprintf(`{"hold":%q,"n":0}`, renewed.Hold))
			if s.Repeated != (i > 0) {
				t.Errorf("settlement %d: %+v", i, s)
			}
		}
		open(0, 0)
		refused := b.get("/v1/top", "by", "refused")
		for _, a := range []answer{refused, b.get("/v1/top", "by", "count")} {
			for _, k := range a.Keys {
				if k.Key != "ann" {
					t.Errorf("%+v", a)
				}
			}
		}
		if len(refused.Keys) > 0 { // only by a dry run
			t.Errorf("refused: %+v", refused)
		}
	})
}
