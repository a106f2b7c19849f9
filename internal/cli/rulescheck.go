package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/config"
	"twotier.dev/twotier/internal/lint"
	"twotier.dev/twotier/internal/rules"
	"twotier.dev/twotier/internal/warning"
)

// checkRules prints the mistakes and warnings about a file of rules. It takes the namespaces from
// the file settings, if given. It asks no server.
func (s *session) checkRules(settings, path string) error {
	var args []string
	if settings != "" {
		args = []string{"--config", settings}
	}
	cfg, err := config.Parse(args, nil)
	if err != nil {
		return err
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	list, err := lintRules(&cfg, path, text)
	if s.json {
		return errors.Join(json.NewEncoder(s.Stdout).Encode(map[string]any{
			"mistakes": mistakes(err), "warnings": list}), err)
	}
	for _, w := range list {
		fmt.Fprintln(s.Stdout, w)
	}
	if err == nil {
		_, err = fmt.Fprintf(s.Stdout, "%s: no mistakes, %d warnings\n", path, len(list))
	}
	return err
}

// lintRules returns the warnings about a document, or an error that lists its mistakes.
func lintRules(cfg *config.Config, path string, text []byte) ([]warning.Warning, error) {
	none := []warning.Warning{}
	if len(text) > twotier.MaxRuleText {
		return none, fmt.Errorf("%s: longer than %d bytes", path, twotier.MaxRuleText)
	}
	doc, err := rules.Read(path, text)
	if err != nil {
		return none, err
	}
	ladders, err := lint.LaddersOf(cfg)
	if err == nil {
		err = ladders.CheckWindows(doc)
	}
	if err != nil {
		return none, err
	}
	return append(none, lint.Rules(doc, ladders)...), nil
}

// mistakes returns the lines of an error.
func mistakes(err error) []string {
	if err == nil {
		return []string{}
	}
	return strings.Split(err.Error(), "\n")
}
