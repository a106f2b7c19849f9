package rulebook

import (
	"context"
	"sync"

	"twotier.dev/twotier"
)

// Store keeps the newest [twotier.MaxRuleVersions] versions of the rules for all nodes.
type Store interface {
	// Newest returns the number and the ID of the newest version, or 0 and "" if there is none.
	Newest(ctx context.Context) (number int64, id string, err error)
	// Version returns a version, or [twotier.ErrNoRuleVersion].
	Version(ctx context.Context, number int64) (twotier.RuleVersion, error)
	// History returns the stored versions, newest first.
	History(ctx context.Context) ([]twotier.RuleVersion, error)
	// Append stores v as the successor of version v.Number-1, or returns [twotier.ErrRulesMoved] if
	// that is not the newest one. After any other error it is unknown whether v was stored.
	Append(ctx context.Context, v twotier.RuleVersion) error
	// Restore stores v unless there is a version of its number or a later one.
	Restore(ctx context.Context, v twotier.RuleVersion) error
}

// Memory is a [Store] for the nodes of one process. The zero value is empty.
type Memory struct {
	mu       sync.Mutex
	versions []twotier.RuleVersion // the newest first
}

// Newest implements [Store].
func (m *Memory) Newest(context.Context) (number int64, id string, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	v := m.newest()
	return v.Number, v.ID, nil
}

func (m *Memory) newest() (v twotier.RuleVersion) {
	if len(m.versions) > 0 {
		v = m.versions[0]
	}
	return v
}

// Version implements [Store].
func (m *Memory) Version(_ context.Context, number int64) (twotier.RuleVersion, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, v := range m.versions {
		if v.Number == number {
			return v, nil
		}
	}
	return twotier.RuleVersion{}, twotier.ErrNoRuleVersion
}

// History implements [Store].
func (m *Memory) History(context.Context) ([]twotier.RuleVersion, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return append([]twotier.RuleVersion(nil), m.versions...), nil
}

// Append implements [Store].
func (m *Memory) Append(_ context.Context, v twotier.RuleVersion) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.newest().Number != v.Number-1 {
		return twotier.ErrRulesMoved
	}
	m.add(v)
	return nil
}

// Restore implements [Store]. Memory never loses a version, so there is nothing to restore.
func (m *Memory) Restore(context.Context, twotier.RuleVersion) error { return nil }

func (m *Memory) add(v twotier.RuleVersion) {
	kept := m.versions[:min(len(m.versions), twotier.MaxRuleVersions-1)]
	m.versions = append([]twotier.RuleVersion{v}, kept...)
}
