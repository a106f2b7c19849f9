package rules_test

import (
	"testing"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/rules"
)

// TestBookInShadow puts a document in force in a book with a namespace in shadow: its rules that
// are on are in shadow.
func TestBookInShadow(t *testing.T) {
	const text = "rules:\n- {name: on, limits: [9/1m], ban: 1m, charge: always}\n" +
		"- {name: off, limits: [9/1m], state: off}\n" +
		"- {name: usual, limits: [8/1m], default: true}\n" +
		"- {name: sms, namespace: sms, limits: [9/1m]}\n"
	book := rules.Book{Shadow: twotier.Shadow{"default": true, "sms": false}}
	book.Set(read(t, text), 4)
	set := book.Rules()
	for name, want := range map[string]string{"on": "shadow", "off": "off", "usual": "shadow",
		"sms": "on"} {
		if r := set.Find([]byte(name)); r.State.String() != want || r.Bans() || r.Charges() {
			t.Errorf("%s is %v", name, r.State)
		}
	}
	if usual := set.Defaults(nil); len(usual) != 1 || usual[0].State != twotier.RuleShadow ||
		set.Version() != 4 {
		t.Errorf("the default rules are %v, of version %d", usual, set.Version())
	}
	if s := (twotier.Shadow{}); s.In(nil) || s.In([]byte("sms")) || (twotier.Shadow)(nil).In(nil) {
		t.Error("an empty Shadow has namespaces")
	}
}
