package cli

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"twotier.dev/twotier/internal/config"
)

const (
	helpWidth = 80
	// The columns in which the descriptions of commands and flags begin.
	commandIndent, flagIndent = 14, 26
)

// writeHelp writes the full help of a command.
func writeHelp(w io.Writer, cmd *cobra.Command) {
	var out strings.Builder
	fmt.Fprintf(&out, "%s - %s\n\nusage: %s\n", cmd.CommandPath(), cmd.Short, cmd.UseLine())
	if cmd.Long != "" {
		out.WriteString("\n" + wrap(cmd.Long, helpWidth) + "\n")
	}
	for _, g := range cmd.Groups() {
		writeGroup(&out, cmd, g)
	}
	writeGroup(&out, cmd, &cobra.Group{Title: "More commands:"})
	if cmd.HasParent() {
		writeFlags(&out, "Flags", cmd.LocalFlags(), false)
		writeFlags(&out, "Advanced flags", cmd.LocalFlags(), true)
	}
	if cmd.Example != "" {
		out.WriteString("\nExamples:\n" + indent(cmd.Example) + "\n")
	}
	_, _ = io.WriteString(w, out.String()) // there is nowhere to report a failure
}

// writeGroup lists the commands of a group under its title.
func writeGroup(out *strings.Builder, cmd *cobra.Command, g *cobra.Group) {
	title := "\n" + g.Title + "\n"
	for _, c := range cmd.Commands() {
		if c.GroupID == g.ID && (c.IsAvailableCommand() || c.Name() == "help") {
			out.WriteString(title)
			title = ""
			describe(out, c.Name(), c.Short, commandIndent)
		}
	}
}

// writeFlags describes the advanced flags of a command, or all others except --help.
func writeFlags(out *strings.Builder, title string, flags *pflag.FlagSet, advanced bool) {
	title = "\n" + title + ":\n"
	flags.VisitAll(func(f *pflag.Flag) {
		_, marked := f.Annotations[config.AdvancedAnnotation]
		if !f.Hidden && f.Name != "help" && marked == advanced {
			out.WriteString(title)
			title = ""
			describeFlag(out, f)
		}
	})
}

func describeFlag(out *strings.Builder, f *pflag.Flag) {
	arg, usage := pflag.UnquoteUsage(f)
	switch f.DefValue {
	case "", "false", "0", "0s":
	default:
		usage += " (default " + f.DefValue + ")"
	}
	describe(out, strings.TrimSpace(dashedName(f)+" "+arg), usage, flagIndent)
}

// describe writes a name and its description, which goes into a column that begins at indent.
func describe(out *strings.Builder, name, text string, indent int) {
	head := fmt.Sprintf("  %-*s", indent-2, name)
	if len(head) > indent || head[indent-1] != ' ' {
		head = "  " + name + "\n" + strings.Repeat(" ", indent)
	}
	text = wrap(strings.Join(strings.Fields(text), " "), helpWidth-indent)
	out.WriteString(head + strings.ReplaceAll(text, "\n", "\n"+strings.Repeat(" ", indent)) + "\n")
}

// wrap breaks paragraphs, which empty lines separate, into lines of at most width characters.
// Paragraphs that begin with a space are kept unchanged.
func wrap(text string, width int) string {
	paragraphs := strings.Split(strings.TrimRight(text, "\n"), "\n\n")
	for i, p := range paragraphs {
		if !strings.HasPrefix(p, " ") {
			paragraphs[i] = wrapWords(strings.Fields(p), width)
		}
	}
	return strings.Join(paragraphs, "\n\n")
}

// wrapWords joins words into lines of at most width characters.
func wrapWords(words []string, width int) string {
	var out strings.Builder
	length := 0
	for _, word := range words {
		n := utf8.RuneCountInString(word)
		switch {
		case length == 0:
		case length+1+n > width:
			out.WriteByte('\n')
			length = 0
		default:
			out.WriteByte(' ')
			length++
		}
		out.WriteString(word)
		length += n
	}
	return out.String()
}

func indent(text string) string { return "  " + strings.ReplaceAll(text, "\n", "\n  ") }

// dashedName returns the name of a flag with its dashes.
func dashedName(f *pflag.Flag) string {
	if len(f.Name) == 1 {
		return "-" + f.Name
	}
	return "--" + f.Name
}
