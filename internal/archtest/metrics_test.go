package archtest

import (
	"go/ast"
	"go/token"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

var (
	metric = regexp.MustCompile(`\btwotier_[a-z_]*[a-z]\b`)
	alert  = regexp.MustCompile(`\bTwotier[A-Z][A-Za-z]+\b`)
)

// pythonModule is the module with the middleware of the Python client.
const pythonModule = "twotier_middleware"

// TestDocumentedMetricsExist checks that the code has all metrics, and the rules for Prometheus all
// alerts, that documents, alerts and the dashboard name.
func TestDocumentedMetricsExist(t *testing.T) {
	metrics := metricsOfCode(t)
	if len(metrics) < 50 {
		t.Fatalf("the code has only %d metrics: they are not found any more", len(metrics))
	}
	const rules, dashboard = "deploy/prometheus/alerts.yaml", "deploy/grafana/twotier.json"
	alerts := read(t, rules)
	for _, file := range append(documents(t), rules, dashboard) {
		text := read(t, file)
		for _, name := range metric.FindAllString(text, -1) {
			base := name
			for _, suffix := range []string{"_bucket", "_sum", "_count"} {
				base = strings.TrimSuffix(base, suffix)
			}
			if !slices.Contains(metrics, name) && !slices.Contains(metrics, base) &&
				name != pythonModule {
				t.Errorf("%s names the metric %s, which is not there", file, name)
			}
		}
		for _, name := range alert.FindAllString(text, -1) {
			if !strings.Contains(alerts, "alert: "+name+"\n") {
				t.Errorf("%s names the alert %s, which is not there", file, name)
			}
		}
	}
}

// metricsOfCode returns all strings in the code that are names of metrics.
func metricsOfCode(t *testing.T) (names []string) {
	for _, p := range packages(t) {
		for _, f := range p.files {
			ast.Inspect(f, func(n ast.Node) bool {
				if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING {
					text, err := strconv.Unquote(lit.Value)
					if err == nil && metric.FindString(text) == text && text != "" {
						names = append(names, text)
					}
				}
				return true
			})
		}
	}
	return names
}
