package config_test

import (
	"fmt"
	"strings"
	"testing"

	"twotier.dev/twotier/internal/testing/must"
)

// TestInShadow checks which namespaces settings put into shadow.
func TestInShadow(t *testing.T) {
	file := must.File(t, "c.yaml", "namespaces: {sms: {shadow: true}, x: {shadow: false}}\n")
	usual := must.File(t, "d.yaml", "namespaces: {default: {shadow: true}, x: {shadow: false}}\n")
	for _, tt := range []struct {
		args []string
		want string // of the namespaces default, sms, x and y
	}{
		{nil, "false false false false"},
		{[]string{"--shadow"}, "true true true true"},
		{[]string{"--config", file}, "false true false false"},
		{[]string{"--config", usual}, "true true false true"},
		{[]string{"--config", usual, "--shadow"}, "true true true true"},
		{[]string{"--config", file, "--shadow=false"}, "false true false false"},
	} {
		c := mustParse(t, tt.args, nil)
		shadow := c.InShadow()
		var got []any
		for _, ns := range []string{"", "sms", "x", "y"} {
			got = append(got, shadow.In([]byte(ns)))
		}
		if text := strings.TrimSpace(fmt.Sprintln(got...)); text != tt.want ||
			(shadow == nil) != (tt.want == "false false false false") {
			t.Errorf("%v: %s, want %s", tt.args, text, tt.want)
		}
	}
}
