package archtest

import (
	"go/ast"
	"go/token"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"twotier.dev/twotier/internal/testing/must"
)

// notMeasured lists figures that are no results, from paragraphs that link to results: the inputs
// of a calculation, or measurements that were not kept.
var notMeasured = map[string][]string{
	"docs/comparison.md": {"25,500", "23,500", "16,250", "16,500"}, // "a second run had"
}

var (
	resultsLink = regexp.MustCompile(`\(((?:\.\./)?bench/results/[\w./-]+\.md)(?:#[\w-]+)?\)`)
	// aside matches the parts of a paragraph that are no prose: link targets and code.
	aside  = regexp.MustCompile("\\([^()\\s]*\\)|`[^`]*`")
	figure = regexp.MustCompile(`(?:^|[\s(~±])(\d[\d,]*(?:\.\d+)?)(?:[\s%,;:)]|\.(?:\s|$)|$)`)
	number = regexp.MustCompile(`\d[\d,]*(?:\.\d+)?`)
	// paragraphs matches the end of a paragraph: an empty line, or the next item or row.
	paragraphs = regexp.MustCompile(`\n\s*\n|\n[-*|] `)
)

// TestFiguresAreThoseOfTheResults compares every figure of two digits or more, in a paragraph of
// the documents that links to results, with the numbers in these results: one of them must round to
// it.
func TestFiguresAreThoseOfTheResults(t *testing.T) {
	docs, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	must.Succeed(t, err)
	compared := 0
	for _, path := range append(docs, filepath.Join(root, "README.md")) {
		doc, err := filepath.Rel(root, path)
		must.Succeed(t, err)
		for _, text := range paragraphs.Split(read(t, doc), -1) {
			var measured []string
			for _, link := range resultsLink.FindAllStringSubmatch(text, -1) {
				results := read(t, filepath.Join(filepath.Dir(doc), link[1]))
				measured = append(measured, number.FindAllString(results, -1)...)
			}
			if measured == nil {
				continue
			}
			for _, f := range figuresIn(text) {
				compared++
				if !slices.ContainsFunc(measured, func(n string) bool { return roundsTo(n, f) }) &&
					!slices.Contains(notMeasured[filepath.ToSlash(doc)], f) {
					t.Errorf("%s: %s is in none of the results that this links to: %s", doc, f,
						strings.Join(strings.Fields(text), " "))
				}
			}
		}
	}
	if compared < 50 {
		t.Errorf("only %d figures were compared", compared)
	}
}

// figuresIn returns the figures of a paragraph.
func figuresIn(text string) (list []string) {
	prose := aside.ReplaceAllString(text, " ")
	prose = strings.ReplaceAll(prose, "**", " ")
	for at := 0; ; {
		m := figure.FindStringSubmatchIndex(prose[at:])
		if m == nil {
			return list
		}
		if f := strings.TrimRight(prose[at+m[2]:at+m[3]], ","); len(f) > 1 {
			list = append(list, f)
		}
		at += m[3]
	}
}

// roundsTo reports whether a number is a figure, rounded to the figure's digits.
func roundsTo(n, figure string) bool {
	n, figure = strings.ReplaceAll(n, ",", ""), strings.ReplaceAll(figure, ",", "")
	if n == figure {
		return true
	}
	_, decimals, _ := strings.Cut(figure, ".")
	v, err := strconv.ParseFloat(n, 64)
	return err == nil && strconv.FormatFloat(v, 'f', len(decimals), 64) == figure
}

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

// TestEveryWarningHasASection checks that docs/warnings.md has a section for each code of a
// warning, and no others.
func TestEveryWarningHasASection(t *testing.T) {
	codes := warningCodes(t)
	if len(codes) < 10 {
		t.Fatalf("found only %d codes: the rule looks in the wrong place", len(codes))
	}
	for line := range strings.Lines(read(t, "docs/warnings.md")) {
		code, ok := strings.CutPrefix(strings.TrimSpace(line), "## ")
		if !ok {
			continue
		}
		if i := slices.Index(codes, code); i >= 0 {
			codes = slices.Delete(codes, i, i+1)
		} else {
			t.Errorf("docs/warnings.md has a section %s, which is no code or has two", code)
		}
	}
	for _, code := range codes {
		t.Errorf("docs/warnings.md has no section %s", code)
	}
}

// warningCodes returns the values of all constants of type warning.Code.
func warningCodes(t *testing.T) (codes []string) {
	for _, p := range packages(t) {
		if p.path != "internal/warning" {
			continue
		}
		for _, f := range p.files {
			ast.Inspect(f, func(n ast.Node) bool {
				spec, ok := n.(*ast.ValueSpec)
				if !ok {
					return true
				}
				if kind, ok := spec.Type.(*ast.Ident); !ok || kind.Name != "Code" {
					return true
				}
				for _, value := range spec.Values {
					if lit, ok := value.(*ast.BasicLit); ok && lit.Kind == token.STRING {
						code, err := strconv.Unquote(lit.Value)
						if err != nil {
							t.Fatal(err)
						}
						codes = append(codes, code)
					}
				}
				return true
			})
		}
	}
	return codes
}
