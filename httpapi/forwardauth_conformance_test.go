package httpapi_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"twotier.dev/twotier/httpapi"
)

// TestForwardAuthAnswersAsAcquire sends the same random requests in both ways, to two services.
// Rules that judge the same key in the same namespace are one check of the acquire.
func TestForwardAuthAnswersAsAcquire(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 14))
	var forwards, acquires *httpapi.Server
	namespaces := map[string]string{"sms": "sms", "sms-day": "sms"} // of the tests' rules
	codes := map[int]int{}
	for i := range 1000 {
		if i%50 == 0 { // otherwise all keys are full in the end
			forwards, acquires = newServer(t, newFake()), newServer(t, newFake())
		}
		type check struct {
			Key   string   `json:"key"`
			Rules []string `json:"rules"`
		}
		var checks []check
		var headers, query []string
		for _, at := range rnd.Perm(5)[:1+rnd.IntN(3)] {
			name := []string{"login", "sms", "sms-day", "tight", "off"}[at]
			user := rnd.IntN(4)
			header, value := fmt.Sprint("x-", user), []string{"bob", "eve"}[user%2]
			key := header + "=" + value
			query = append(query, "rule="+name+"&key="+header)
			headers = append(headers, header+": "+value)
			same := func(c check) bool {
				return c.Key == key && namespaces[c.Rules[0]] == namespaces[name]
			}
			if j := slices.IndexFunc(checks, same); j >= 0 {
				checks[j].Rules = append(checks[j].Rules, name)
			} else {
				checks = append(checks, check{key, []string{name}})
			}
		}
		body, err := json.Marshal(map[string]any{"checks": checks})
		if err != nil {
			t.Fatal(err)
		}
		one := forward(forwards, "192.0.2.7", strings.Join(query, "&"), headers...)
		two := call(acquires, "POST /v1/acquire", string(body))
		var got, want struct {
			Allowed bool
			Checks  []any
		}
		if err := json.Unmarshal(one.Response.Body(), &got); err != nil {
			t.Fatalf("%q: %d %s", query, one.Response.StatusCode(), one.Response.Body())
		}
		if err := json.Unmarshal(two.Response.Body(), &want); err != nil || want.Checks == nil {
			t.Fatalf("%s: %d %s", body, two.Response.StatusCode(), two.Response.Body())
		}
		code := one.Response.StatusCode()
		codes[code]++
		if !reflect.DeepEqual(got, want) || got.Allowed != (code == 200) {
			t.Fatalf("%q: %d %s\nan acquire: %s", query, code, one.Response.Body(),
				two.Response.Body())
		}
	}
	if len(codes) != 2 || codes[200] < 100 || codes[429] < 100 {
		t.Errorf("answers by status: %v", codes)
	}
}
