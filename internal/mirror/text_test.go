package mirror_test

import (
	"strings"
	"testing"

	"twotier.dev/twotier/internal/mirror"
)

// TestSummaryOfNothing: a share of no verdicts is not printed.
func TestSummaryOfNothing(t *testing.T) {
	r := &mirror.Report{Agreement: 1, Invalid: 2}
	if got := r.Summary(); got != "0 compared; waiting 0, dropped 0, errors 0, invalid 2" {
		t.Error(got)
	}
}

// TestUnknownCallsAreReported reports them after the compared verdicts.
func TestUnknownCallsAreReported(t *testing.T) {
	r := &mirror.Report{Compared: 1, Agreed: 1, Agreement: 1, UnknownCalls: 3, LastUnknown: "5f3a"}
	const want = "\n3 EVALSHA of a script not in --mapping: 5f3a (add sha:)\n"
	if got := r.String(); !strings.Contains(got, want) || strings.Contains(r.Summary(), "5f3a") {
		t.Error(got)
	}
}

// TestBestModel: a model that predicts few verdicts is not mentioned.
func TestBestModel(t *testing.T) {
	for model, want := range map[mirror.Reason]string{
		mirror.CountsRefused:    "a model that counts refused requests (97%)",
		mirror.FixedWindow:      "a model with windows that begin at multiples",
		mirror.FirstEventWindow: "a model with windows that begin with their first event",
		mirror.WeightedWindow:   "a model that estimates the sliding window",
		mirror.TokenBucket:      "a model that refills continuously",
	} {
		r := &mirror.Report{Compared: 100, Agreed: 30, Agreement: 0.3,
			Keys:   []mirror.KeyReport{{Key: "ann"}},
			Models: []mirror.ModelShare{{Model: model, Share: 0.97}}}
		if got := r.String(); !strings.Contains(got, "the old limiter is best predicted by "+want) {
			t.Errorf("%s: %s", model, got)
		}
		r.Models[0].Share = 0.397
		if got := r.String(); strings.Contains(got, "predicted") {
			t.Errorf("39.7%%: %s", got)
		}
	}
}
