package cli

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
)

// manCommand returns the command that writes manual pages for all commands of root.
func manCommand(root *cobra.Command) *cobra.Command {
	return &cobra.Command{
		Use: "man DIRECTORY", Short: "write manual pages, one for each command",
		Long: "Writes a page of section 1 for each command, such as twotier-serve.1, into a " +
			"directory, which is created if it does not exist. The pages are dated " +
			"SOURCE_DATE_EPOCH if that is set.",
		Example: "twotier man ~/.local/share/man/man1 && man twotier-serve",
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usagef("want one DIRECTORY")
			}
			if err := os.MkdirAll(args[0], 0o755); err != nil {
				return err
			}
			root.DisableAutoGenTag = true // no line about the generator and the date
			header := &doc.GenManHeader{Section: "1", Source: root.Version, Manual: "twotier"}
			if err := doc.GenManTree(root, header, args[0]); err != nil {
				return fmt.Errorf("manual pages: %w", err)
			}
			return nil
		},
	}
}
