package clustertest

import (
	"fmt"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/internal/testing/proctest"
)

// shadowRules are rules of every kind, which refuse the second request for a key.
const shadowRules = `
rules:
  - {name: one, namespace: ip, limits: [1/24h], ban: 10m}
  - {name: charged, namespace: ip, limits: [1/24h], charge: always}
  - {name: usual, namespace: usual, limits: [1/24h], default: true}
  - {name: devices, namespace: devices, distinct: 1/24h}
---
domain: edge
descriptors:
  - {key: ip, rate_limit: {unit: day, requests_per_unit: 1}}
`

// doors sends a request to every endpoint that decides, of a node with the shadow rules, and
// reports which of them refuse.
func doors(t *testing.T, p *proctest.Process) (refusing []string) {
	t.Helper()
	say := func(door string, refused bool) {
		if refused {
			refusing = append(refusing, door)
		}
	}
	for door, request := range map[string][2]string{
		"limits":  {"/v1/acquire", `{"key":"l","limits":[{"window":"24h","max":1}]}`},
		"rule":    {"/v1/acquire", `{"key":"r","rules":["one","charged"]}`},
		"default": {"/v1/acquire", `{"ns":"usual","key":"d"}`},
		"checks": {"/v1/acquire", `{"checks":[{"key":"c","limits":[{"window":"24h","max":1}]},` +
			`{"key":"c","rules":["one"]}]}`},
		"batch": {"/v1/batch", `{"ops":[{"op":"acquire","key":"b","limits":[{"window":"24h",` +
			`"max":1}]},{"op":"acquire","key":"b","rules":["one"]},{"op":"distinct","key":"b",` +
			`"values":["a","b"],"limits":[{"window":"24h","max":1}]}]}`},
		"values": {"/v1/distinct", `{"key":"v","values":["a","b"],"rules":["devices"]}`},
	} {
		answer := string(p.MustPost(request[0], request[1]))
		say(door, strings.Contains(answer, `"allowed":false`) ||
			strings.Contains(answer, `"over":true`))
	}
	status, _ := p.Get("/v1/forward-auth?rule=one&key=ip")
	say("forward-auth", status != 200)
	for _, door := range []string{"json", "grpc"} {
		say(door, asksEnvoy(t, p, door, "edge", "ip="+door, 1))
	}
	client := redis.NewClient(&redis.Options{Addr: p.Resp})
	defer client.Close()
	for door, command := range map[string][]any{
		"TT.ACQUIRE":  {"TT.ACQUIRE", "t", "LIMIT", "24h", "1", "KEY", "t", "RULE", "one"},
		"TT.DISTINCT": {"TT.DISTINCT", "t", "VALUES", "2", "a", "b", "LIMIT", "24h", "1"},
		"CL.THROTTLE": {"CL.THROTTLE", "u", "0", "1", "86400"},
	} {
		got, err := client.Do(t.Context(), command...).Int64Slice()
		must.Succeed(t, err)
		say(door, got[0] != map[bool]int64{true: 0, false: 1}[door == "CL.THROTTLE"])
	}
	return refusing
}

// TestShadowRefusesNothing sends the same requests again and again to two nodes. The one with
// --shadow refuses nothing, starts no ban, and reports at every endpoint that it would have
// refused; the other one refuses at every endpoint.
func TestShadowRefusesNothing(t *testing.T) {
	for _, shadow := range []bool{true, false} {
		t.Run(fmt.Sprint("shadow=", shadow), func(t *testing.T) {
			c := start(t, 1, "--rules", configured(t, shadowRules), "--resp", "127.0.0.1:0",
				"--grpc", "127.0.0.1:0", "--shadow="+fmt.Sprint(shadow))
			p := c.Nodes[0]
			doors(t, p)
			refusing := doors(t, p)
			if want := 12; shadow != (len(refusing) == 0) || !shadow && len(refusing) != want {
				t.Errorf("refusing are %d: %v", len(refusing), refusing)
			}
			for _, door := range []string{"http", "forward-auth", "envoy-json", "resp", "grpc"} {
				refused := p.Metric("twotier_decisions_total", `door="`+door+`",`)
				if refused == 0 {
					t.Errorf("%s decided nothing", door)
				}
			}
			_, page := p.Get("/metrics")
			refused := strings.Count(string(page), `verdict="refused"} 0`)
			would := strings.Count(string(page), `verdict="shadow_refused"} 0`)
			if all := strings.Count(string(page), `verdict="refused"}`); shadow &&
				(refused != all || would == all) || !shadow && (refused == all || would != all) {
				t.Errorf("of %d, %d refuse nothing and %d would refuse nothing", all, refused,
					would)
			}
			_, bans := p.Get("/v1/bans")
			if none := strings.HasPrefix(string(bans), `{"bans":[]`); none != shadow {
				t.Errorf("bans: %s", bans)
			}
			if warns := strings.Contains(p.Log.String(), "none is refused"); warns != shadow {
				t.Errorf("the log warns: %v", warns)
			}
		})
	}
}

// TestNamespaceInShadow puts two namespaces into shadow. Neither a check nor a descriptor of them
// refuses. The check of another namespace in the same acquire does, and so does another domain.
func TestNamespaceInShadow(t *testing.T) {
	c := start(t, 2, "--config", configured(t,
		"namespaces: {ip: {shadow: true}, edge: {shadow: true}}\n"), "--rules",
		configured(t, shadowRules+"---\ndomain: other\ndescriptors:\n"+
			"  - {key: ip, rate_limit: {unit: day, requests_per_unit: 1}}\n"),
		"--grpc", "127.0.0.1:0")
	for i := range 4 {
		p := c.Nodes[i%2]
		answer := string(p.MustPost("/v1/acquire", `{"key":"k","rules":["one"]}`))
		if !strings.Contains(answer, `"allowed":true`) || i > 0 !=
			strings.Contains(answer, `"refused":true,"rule":"one","shadow":true`) {
			t.Errorf("acquire %d: %s", i, answer)
		}
		answer = string(p.MustPost("/v1/acquire", `{"checks":[{"key":"l","rules":["one"]},`+
			`{"ns":"usual","key":"k"}]}`))
		refused := strings.Contains(answer, `"refused_by":["checks[1].usual"]`)
		if refused != (i > 0) {
			t.Errorf("checks %d: %s", i, answer)
		}
		for _, door := range []string{"json", "grpc"} {
			if asksEnvoy(t, p, door, "edge", "ip="+door, 1) {
				t.Errorf("%s refuses request %d in shadow", door, i)
			}
			if asksEnvoy(t, p, door, "other", "ip="+door, 1) != (i > 0) {
				t.Errorf("%s, request %d in the other domain", door, i)
			}
		}
	}
	// Each key was allowed once. Of the same list are the keys of acquires.
	proctest.Until(t, "the keys are listed", func() bool {
		_, list := c.Nodes[0].Get("/v1/top?window=24h&by=shadow")
		return strings.Contains(string(list), `{"ns":"edge","key":"ip=json","count":3}`) &&
			strings.Contains(string(list), `{"ns":"edge","key":"ip=grpc","count":3}`)
	})
}
