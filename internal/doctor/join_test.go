package doctor_test

import (
	"strings"
	"testing"

	"twotier.dev/twotier/internal/doctor"
)

// TestJoinListsAllNodes compares lists of addresses with the size of a cluster.
func TestJoinListsAllNodes(t *testing.T) {
	const a, b, c = "127.0.0.1:7946", "10.1.2.3:7946", "10.1.2.4:7946"
	for _, tt := range []struct {
		join, own string
		members   int
		want      string
	}{
		{join: a, own: a, members: 3, want: "lists 0 of 2"},
		{join: "", own: a, members: 2, want: "lists 0 of 1"},
		{join: a + "," + b, own: a, members: 3, want: "lists 1 of 2"},
		{join: a + "," + b, own: "0.0.0.0:7946", members: 3, want: "lists 1 of 2"},
		{join: b + "," + b, own: a, members: 3, want: "lists 1 of 2"},
		{join: a + "," + b + "," + c, own: a, members: 3, want: "lists the 2"},
		{join: b + "," + c, own: a, members: 3, want: "lists the 2"},
		{join: b + "," + c, own: ":7946", members: 3, want: "lists the 2"},
		{join: b + ",unknown.invalid:7946", own: a, members: 3, want: "lists the 2"},
	} {
		f := doctor.Join(t.Context(), strings.Split(tt.join, ","), []string{tt.own, ""}, tt.members)
		if !strings.Contains(f.Found, tt.want) || (f.Do != "") != (f.Level == doctor.Warning) {
			t.Errorf("%+v: %+v", tt, f)
		}
	}
}
