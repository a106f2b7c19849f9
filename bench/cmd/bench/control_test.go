package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"twotier.dev/twotier/bench/drive"
	"twotier.dev/twotier/bench/rival"
	"twotier.dev/twotier/internal/testing/must"
)

func controlRun(name, limits string, perSecond float64) *ControlRun {
	return &ControlRun{name, limits, rival.Run{Result: drive.Result{PerSecond: perSecond}}}
}

// TestControlRows: a row has the median run, and is compared with the first rival round by round,
// under the same limits. An interrupted run lacks rounds at the end.
func TestControlRows(t *testing.T) {
	r := ControlResult{Runs: []*ControlRun{
		controlRun("one", "given", 100), controlRun("three", "given", 60),
		controlRun("one", "ample", 50), controlRun("three", "ample", 10),
		controlRun("one", "given", 300), controlRun("three", "given", 60),
		controlRun("one", "given", 200), controlRun("three", "given", 180),
		controlRun("one", "given", 250),
	}}
	var text []string
	for _, row := range r.Rows() {
		text = append(text, row.Name, row.Limits, digits(row.PerSecond), row.Relative.String())
	}
	want := "one given 250.0 1.00 (1.00 to 1.00) three given 60.00 0.60 (0.20 to 0.90) " +
		"one ample 50.00 1.00 (1.00 to 1.00) three ample 10.00 0.20 (0.20 to 0.20)"
	if got := strings.Join(text, " "); got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
}

// TestMessageControlIsMeasured: ample limits admit everything, given ones two messages of a user;
// and the page has all figures.
func TestMessageControlIsMeasured(t *testing.T) {
	dir := t.TempDir()
	err := run(t.Context(), strings.Fields("messages-nodes --users=100 --batch=5 --workers=2 "+
		"--warmup=100ms --duration=300ms --count=1 --out="+dir))
	must.Succeed(t, err)
	var r ControlResult
	file := File{Result: &r}
	if _, err := file.Read(dir, "messages-nodes"); err != nil {
		t.Fatal(err)
	}
	decided := int64(0)
	for _, run := range r.Runs {
		most := run.Decisions
		if run.Limits == "given" {
			most = min(most, 2*100)
		}
		if run.Admitted > most || run.Limits == "ample" && run.Admitted < most ||
			run.Usage.Share() < 0 || run.Usage.Share() >= 1 {
			t.Errorf("%s, %s limits: %d of %d admitted, share %g", run.Name, run.Limits,
				run.Admitted, run.Decisions, run.Usage.Share())
		}
		decided += run.Decisions
	}
	if len(r.Runs) != 4 || decided == 0 {
		t.Errorf("%d runs with %d decisions", len(r.Runs), decided)
	}
	page, err := os.ReadFile(filepath.Join(dir, "messages-nodes.md"))
	for _, wrong := range []string{"%!", "<no value>", "NaN", "| |"} {
		if err != nil || strings.Contains(string(page), wrong) {
			t.Errorf("%q in the page, %v:\n%s", wrong, err, page)
		}
	}
}

func TestSharesThatAreMuch(t *testing.T) {
	usage := func(driver, service, redis float64) rival.Usage {
		return rival.Usage{Driver: driver, Service: service, Redis: rival.Work{CPU: redis}}
	}
	for want, u := range map[string]rival.Usage{
		"5.0 %": usage(1, 12, 7), "10.0 %": usage(1, 5, 4), "**11 %**": usage(1.1, 5, 3.9),
		"–": usage(3, 0, 4), "**60 %**": usage(3, 2, 0),
	} {
		if got := formatShare(u.Share()); got != want {
			t.Errorf("%+v: %s, want %s", u, got, want)
		}
	}
}
