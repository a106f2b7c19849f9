package config

import (
	"fmt"
	"io"
	"strings"
)

// PrintFlags writes the settings as flags with what they mean and their defaults, for a help text.
func PrintFlags(w io.Writer) error {
	const indent = 26
	var out strings.Builder
	for _, s := range settings() {
		head := "  --" + s.name
		if s.arg != "" {
			head += " " + s.arg
		}
		help := s.help
		if s.def != "" && s.arg != "" {
			help += " (default " + s.def + ")"
		}
		if len(head) >= indent {
			head += "\n" + strings.Repeat(" ", indent)
		}
		fmt.Fprintf(&out, "%-*s%s\n", indent, head, strings.ReplaceAll(help, "\n", "\n"+strings.Repeat(" ", indent)))
	}
	_, err := io.WriteString(w, out.String())
	return err
}
