package micro_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/valyala/fasthttp"

	"twotier.dev/twotier/bench/rival"
	"twotier.dev/twotier/internal/testing/must"
)

// BenchmarkHolds compares acquires with a hold with plain ones, and settlements with adds, each as
// an HTTP request of one key on one connection. The kinds of requests take turns. The ratios are
// medians over the turns of the times per request, and of the server's processor times in all.
func BenchmarkHolds(b *testing.B) {
	s := start(b, rival.Twotier("memory", 1, rival.Memory), programs(b))
	server := s.Servers[0]
	client := &fasthttp.HostClient{Addr: server.Addr, MaxConns: 1}
	const turn = 2000
	took, processor := map[string][]float64{}, map[string]float64{}
	var ids [turn]string
	measure := func(kind, path string, body func(i int) string) {
		from, err := server.CPU()
		must.Succeed(b, err)
		start := time.Now()
		for i := range turn {
			ids[i] = post(b, client, path, body(i), kind == "hold" || kind == "lease")
		}
		took[kind] = append(took[kind], float64(time.Since(start).Nanoseconds())/turn)
		to, err := server.CPU()
		must.Succeed(b, err)
		processor[kind] += to - from
	}
	acquire := func(limits, hold string) func(i int) string {
		return func(i int) string {
			return fmt.Sprintf(`{"key":"user:%d","n":3,"limits":[{"window":"1m","max":1000000000}%s]%s}`,
				i, limits, hold)
		}
	}
	settle := func(i int) string { return fmt.Sprintf(`{"hold":%q,"n":5}`, ids[i]) }
	for b.Loop() {
		measure("acquire", "acquire", acquire("", ""))
		measure("add", "add", func(i int) string { return fmt.Sprintf(`{"key":"user:%d"}`, i) })
		measure("hold", "acquire", acquire("", `,"hold":"1m"`))
		measure("settle", "settle", settle)
		measure("lease", "acquire", acquire(`,{"concurrent":1000}`, `,"hold":"1m"`))
		measure("settle-lease", "settle", settle)
	}
	for _, pair := range [][2]string{{"hold", "acquire"}, {"lease", "acquire"}, {"settle", "add"},
		{"settle-lease", "add"}} {
		b.ReportMetric(middle(took[pair[0]])/middle(took[pair[1]]), pair[0]+"/"+pair[1])
		b.ReportMetric(processor[pair[0]]/processor[pair[1]], pair[0]+"/"+pair[1]+"-cpu")
	}
	b.ReportMetric(middle(took["acquire"]), "acquire-ns")
	b.ReportMetric(middle(took["add"]), "add-ns")
}

// post sends a request, and returns the id of the hold in the answer if it has one.
func post(b *testing.B, client *fasthttp.HostClient, path, body string, holds bool) (id string) {
	req, resp := fasthttp.AcquireRequest(), fasthttp.AcquireResponse()
	defer fasthttp.ReleaseRequest(req)
	defer fasthttp.ReleaseResponse(resp)
	req.SetRequestURI("http://" + client.Addr + "/v1/" + path)
	req.Header.SetMethod("POST")
	req.Header.SetContentType("application/json")
	req.SetBodyString(body)
	must.Succeed(b, client.Do(req, resp))
	if resp.StatusCode() != fasthttp.StatusOK {
		b.Fatalf("%s %s: %d %s", path, body, resp.StatusCode(), resp.Body())
	}
	if !holds {
		return ""
	}
	var answer struct{ Hold string }
	must.Succeed(b, json.Unmarshal(resp.Body(), &answer))
	return answer.Hold
}

// middle returns the median.
func middle(list []float64) float64 {
	list = slices.Sorted(slices.Values(list))
	return list[len(list)/2]
}
