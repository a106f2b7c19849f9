package deploytest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v4"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/testing/child"
	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/internal/testing/proctest"
	"twotier.dev/twotier/internal/testing/redistest"
	"twotier.dev/twotier/internal/token"
)

// scraped is a node with a Redis and a Prometheus that scrapes it with the files of
// deploy/prometheus, but without the waiting times of alerts.
type scraped struct {
	t     *testing.T
	redis *redistest.Server
	node  *proctest.Process
	token string // of who may read
	url   string // of Prometheus
	// lines is the content of the file of tokens.
	tokens, lines string
}

func newScraped(t *testing.T) *scraped {
	t.Helper()
	need(t, "prometheus")
	secret, hash := token.New()
	line, err := token.FormatLine("prometheus", hash, twotier.RoleRead, "*")
	must.Succeed(t, err)
	client, hash := token.New()
	another, err := token.FormatLine("client", hash, twotier.RoleCount, "*")
	must.Succeed(t, err)
	dir := t.TempDir()
	must.Write(t, filepath.Join(dir, "token"), secret)
	s := &scraped{t: t, redis: redistest.Start(t), token: secret,
		tokens: filepath.Join(dir, "tokens"), lines: line + "\n" + another + "\n"}
	must.Write(t, s.tokens, s.lines)
	s.node = program.Serve(t, proctest.Options{}, "--redis", s.redis.URL(), "--gossip",
		"127.0.0.1:0", "--resp", "127.0.0.1:0", "--grpc", "127.0.0.1:0", "--tokens", s.tokens,
		"--decisions", filepath.Join(dir, "decisions"), "--notify-url", "http://127.0.0.1:1/unused")
	s.acquire(client)
	s.startPrometheus(dir)
	return s
}

// acquire makes the node decide: until then it has no metrics of decisions.
func (s *scraped) acquire(token string) {
	t := s.t
	t.Helper()
	res, text, err := proctest.Send(s.node.HTTP, http.MethodPost, s.node.Base+"/v1/acquire",
		`{"key":"k","limits":[{"window":"1m","max":5}]}`, "Authorization", "Bearer "+token)
	must.Succeed(t, err)
	if res.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s", res.Status, text)
	}
}

// startPrometheus starts Prometheus on copies of the files of deploy/ with shorter times.
func (s *scraped) startPrometheus(dir string) {
	t := s.t
	t.Helper()
	targets := regexp.MustCompile(`targets: \[.*\]`)
	config := targets.ReplaceAllString(read(t, "deploy", "prometheus", "prometheus.yaml"),
		fmt.Sprintf("targets: [%q]", s.node.Listen))
	config = strings.NewReplacer("interval: 5s", "interval: 200ms",
		"/run/secrets/scrape-token", filepath.Join(dir, "token")).Replace(config)
	rules := regexp.MustCompile(`(?m)^ +for: \S+$`).ReplaceAllString(
		read(t, "deploy", "prometheus", "alerts.yaml"), "")
	must.Write(t, filepath.Join(dir, "prometheus.yaml"), config)
	must.Write(t, filepath.Join(dir, "alerts.yaml"), rules)
	// No other process has this host, whereas a free port could be taken meanwhile.
	address := proctest.Host() + ":19090"
	cmd := exec.Command("prometheus", "--config.file="+filepath.Join(dir, "prometheus.yaml"),
		"--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+address)
	var log proctest.LogBuffer
	cmd.Stderr = &log
	c, err := child.Start(cmd)
	must.Succeed(t, err)
	t.Cleanup(func() {
		if err := c.Terminate(10 * time.Second); err != nil {
			t.Errorf("the end of Prometheus: %v", err)
		}
		if t.Failed() {
			t.Logf("Prometheus says:\n%.4000s", log.String())
		}
	})
	s.url = "http://" + address
}

// query returns the series that an expression selects.
func (s *scraped) query(expr string) (series []struct{ Metric map[string]string }, err error) {
	res, err := s.node.HTTP.Get(s.url + "/api/v1/query?query=" + url.QueryEscape(expr))
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	var answer struct {
		Status, Error string
		Data          struct {
			Result []struct{ Metric map[string]string }
		}
	}
	if err := json.NewDecoder(res.Body).Decode(&answer); err != nil {
		return nil, err
	}
	if answer.Status != "success" {
		return nil, fmt.Errorf("%s: %s", expr, answer.Error)
	}
	return answer.Data.Result, nil
}

// until waits until an expression selects a series.
func (s *scraped) until(expr string) {
	s.t.Helper()
	proctest.UntilNil(s.t, expr, func() error {
		series, err := s.query(expr)
		if err == nil && len(series) == 0 {
			return fmt.Errorf("%s: nothing", expr)
		}
		return err
	})
}

// page returns the node's /metrics.
func (s *scraped) page() string {
	s.t.Helper()
	_, text, err := proctest.Send(s.node.HTTP, http.MethodGet, s.node.Base+"/metrics", "",
		"Authorization", "Bearer "+s.token)
	must.Succeed(s.t, err)
	return text
}

// TestPrometheusScrapesANode loads the alerts into a real Prometheus that scrapes a real node with
// every listener. The metrics are clean, every metric that the alerts and the dashboard name
// exists, and Prometheus understands the expression of each panel. Only the alert of a file fires
// while the tokens have a mistake, and none until Redis ends, and then the node.
func TestPrometheusScrapesANode(t *testing.T) {
	s := newScraped(t)
	if out := run(t, s.page(), "promtool", "check", "metrics"); out != "" {
		t.Errorf("promtool about the metrics:\n%s", out)
	}
	s.until(`up{job="twotier"} == 1`)
	must.Write(t, s.tokens, s.lines+"a mistake\n")
	s.until(`ALERTS{alertname="TwotierFileUnusable",alertstate="firing"}`)
	exprs := panels(t)
	for _, a := range alerts(t) {
		exprs = append(exprs, a.Expr)
	}
	for _, name := range metrics(exprs) {
		s.until(fmt.Sprintf("count(%s)", name))
	}
	for _, expr := range exprs {
		if _, err := s.query(expr); err != nil {
			t.Error(err)
		}
	}
	must.Write(t, s.tokens, s.lines)
	// A slow scrape makes an alert fire for a moment; a real problem makes it fire for good.
	proctest.UntilNil(t, "no alert fires before anything is wrong", func() error {
		firing, err := s.query(`ALERTS{alertstate="firing"}`)
		if err == nil && len(firing) > 0 {
			return fmt.Errorf("%v", firing)
		}
		return err
	})
	s.redis.Kill()
	s.until(`ALERTS{alertname="TwotierRedisDown",alertstate="firing"}`)
	s.node.Kill()
	s.until(`ALERTS{alertname="TwotierDown",alertstate="firing"}`)
}

// metrics returns the names of this program's metrics in some expressions.
func metrics(exprs []string) []string {
	names := regexp.MustCompile(`\btwotier_\w+`).FindAllString(strings.Join(exprs, "\n"), -1)
	slices.Sort(names)
	return slices.Compact(names)
}

// panels returns the expressions of the dashboard, with its variables filled in as Grafana does.
func panels(t *testing.T) (exprs []string) {
	t.Helper()
	var dashboard struct {
		Panels []struct{ Targets []struct{ Expr string } }
	}
	err := json.Unmarshal([]byte(read(t, "deploy", "grafana", "twotier.json")), &dashboard)
	if err != nil || len(dashboard.Panels) == 0 {
		t.Fatalf("no dashboard: %v", err)
	}
	fill := strings.NewReplacer("$job", "twotier", "$__rate_interval", "1m")
	for _, p := range dashboard.Panels {
		for _, target := range p.Targets {
			exprs = append(exprs, fill.Replace(target.Expr))
		}
	}
	return exprs
}

// TestEveryAlertHasARunbook checks that the alerts, the sections of docs/operations.md about them,
// and their unit tests are the same, and that each alert names its section.
func TestEveryAlertHasARunbook(t *testing.T) {
	doc := read(t, "docs", "operations.md")
	var sections, names []string
	for _, m := range regexp.MustCompile(`(?m)^### (Twotier\w+)$`).FindAllStringSubmatch(doc, -1) {
		sections = append(sections, m[1])
	}
	for _, a := range alerts(t) {
		names = append(names, a.Alert)
		want := "docs/operations.md#" + strings.ToLower(a.Alert)
		if a.Annotations["runbook"] != want || a.Annotations["summary"] == "" {
			t.Errorf("%s: annotations %v, want a summary and %s", a.Alert, a.Annotations, want)
		}
	}
	slices.Sort(sections)
	slices.Sort(names)
	if !slices.Equal(sections, names) {
		t.Errorf("sections for %v, alerts %v", sections, names)
	}
	if fire := fired(t); !slices.Equal(fire, names) {
		t.Errorf("the unit tests make %v fire, the alerts are %v", fire, names)
	}
}

// fired returns the names of the alerts that unit tests expect to fire.
func fired(t *testing.T) (names []string) {
	t.Helper()
	var file struct {
		Tests []struct {
			Rules []struct {
				Name   string `yaml:"alertname"`
				Alerts []any  `yaml:"exp_alerts"`
			} `yaml:"alert_rule_test"`
		}
	}
	err := yaml.Unmarshal([]byte(read(t, "deploy", "prometheus", "alerts.test.yaml")), &file)
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range file.Tests {
		for _, rule := range test.Rules {
			if len(rule.Alerts) > 0 {
				names = append(names, rule.Name)
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// TestAlertsFireInUnitTests lets promtool evaluate each alert on series that make it fire for one
// node and not for another.
func TestAlertsFireInUnitTests(t *testing.T) {
	run(t, "", "promtool", "check", "rules", top("deploy", "prometheus", "alerts.yaml"))
	run(t, "", "promtool", "test", "rules", top("deploy", "prometheus", "alerts.test.yaml"))
}
