package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"

	"twotier.dev/twotier/httpapi"
	"twotier.dev/twotier/internal/config"
	"twotier.dev/twotier/internal/reload"
	"twotier.dev/twotier/internal/rulebook"
	"twotier.dev/twotier/internal/rules"
	"twotier.dev/twotier/internal/strictyaml"
)

// addRules makes the keeper of the rules, which puts them into book. It offers the keeper the
// configured rules, from a list in the configuration file or from a separate file, now and whenever
// they change.
func (s *server) addRules(web *httpapi.Options, book *rules.Book) error {
	s.rules = rulebook.New(rulebook.Options{Store: s.store.rules, Book: book, Check: s.checkRules,
		InForce: s.warnOfRules, Joining: true, Timeout: s.cfg.RedisTimeout, Logger: s.log})
	web.Rules, web.RuleBook = book, s.rules
	switch {
	case s.cfg.RuleList != nil:
		return s.addRuleList()
	case s.cfg.Rules != "":
		return s.addRuleFile()
	}
	return nil
}

// addRuleList offers the list in the configuration file, now and whenever it changes. Mistakes are
// reported with their place in that file.
func (s *server) addRuleList() error {
	var offered []byte
	offerList := func(list *strictyaml.Node) error {
		doc, err := rules.ReadList(s.cfg.File, list)
		if err != nil {
			return err
		}
		text, err := rules.Text(list)
		if err != nil {
			return fmt.Errorf("%s: %w", s.cfg.File, err)
		}
		return s.offerRules(s.cfg.File, doc, text, &offered)
	}
	if err := offerList(s.cfg.RuleList); err != nil {
		return err
	}
	if info, err := os.Stat(s.cfg.File); err != nil || !info.Mode().IsRegular() {
		return err // a pipe, which can't be read again
	}
	return s.files.Add(reload.Source{Name: "rules in --config", Paths: []string{s.cfg.File},
		Apply: func(contents [][]byte) error {
			list, err := config.ReadRules(s.cfg.File, contents[0])
			switch {
			case err != nil:
				return err
			case list == nil:
				return fmt.Errorf("%s: there is no list of rules in it any more; write rules: [] "+
					"to have none, or restart", s.cfg.File)
			}
			return offerList(list)
		}})
}

// addRuleFile offers the file of rules, now and whenever it changes.
func (s *server) addRuleFile() error {
	var offered []byte
	return s.files.Add(reload.Source{Name: "--rules", Paths: []string{s.cfg.Rules},
		Apply: func(contents [][]byte) error {
			doc, err := rules.Read(s.cfg.Rules, contents[0])
			if err != nil {
				return err
			}
			return s.offerRules(s.cfg.Rules, doc, contents[0], &offered)
		}})
}

// offerRules offers rules from a file, unless their text is the one that was offered last, as when
// other settings in the file have changed, or a mistake was taken back: rules may have changed by
// other means meanwhile.
func (s *server) offerRules(path string, doc *rules.Document, text []byte, last *[]byte) error {
	again := *last != nil
	if err := s.checkRules(doc); err != nil || again && bytes.Equal(text, *last) {
		return err
	}
	author := fmt.Sprintf("file %s of node %s", filepath.Base(path), s.cfg.Node)
	if err := s.rules.Offer(text, author, again); err != nil {
		return err
	}
	*last = text
	return nil
}

// checkRules returns an error unless the ladders of the namespaces cover the windows of rules.
func (s *server) checkRules(doc *rules.Document) error {
	return s.store.ladders.CheckWindows(doc)
}

// rulesInForce returns the version of the rules in force and its author, or 0 while it is unknown.
func (s *server) rulesInForce() (version int64, who string) {
	v, _, _ := s.rules.Current()
	return v.Number, v.Who
}
