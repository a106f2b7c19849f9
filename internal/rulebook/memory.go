package rulebook

import (
	"context"
	"sync"

	"twotier.dev/twotier/httpapi/rule"
)

// Store keeps the newest [rule.MaxVersions] versions of the rules for all nodes.
type Store interface {
	// Newest returns the number and the ID of the newest version, or 0 and "" if there is none.
	Newest(ctx context.Context) (number int64, id string, err error)
	// Version returns a version, or [rule.ErrNoVersion].
	Version(ctx context.Context, number int64) (rule.Version, error)
	// History returns the stored versions, newest first.
	History(ctx context.Context) ([]rule.Version, error)
	// Append stores v as the successor of version v.Number-1, or returns [rule.ErrMoved] if that is
	// not the newest one. After any other error it is unknown whether v was stored.
	Append(ctx context.Context, v rule.Version) error
	// Restore stores v unless there is a version of its number or a later one.
	Restore(ctx context.Context, v rule.Version) error
}

// Memory is a [Store] for the nodes of one process. The zero value is empty.
type Memory struct {
	mu       sync.Mutex
	versions []rule.Version // the newest first
}

// Newest implements [Store].
func (m *Memory) Newest(context.Context) (number int64, id string, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	v := m.newest()
	return v.Number, v.ID, nil
}

func (m *Memory) newest() (v rule.Version) {
	if len(m.versions) > 0 {
		v = m.versions[0]
	}
	return v
}

// Version implements [Store].
func (m *Memory) Version(_ context.Context, number int64) (rule.Version, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, v := range m.versions {
		if v.Number == number {
			return v, nil
		}
	}
	return rule.Version{}, rule.ErrNoVersion
}

// History implements [Store].
func (m *Memory) History(context.Context) ([]rule.Version, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return append([]rule.Version(nil), m.versions...), nil
}

// Append implements [Store].
func (m *Memory) Append(_ context.Context, v rule.Version) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.newest().Number != v.Number-1 {
		return rule.ErrMoved
	}
	m.add(v)
	return nil
}

// Restore implements [Store]. Memory never loses a version, so there is nothing to restore.
func (m *Memory) Restore(context.Context, rule.Version) error { return nil }

// add adds the newest version.
func (m *Memory) add(v rule.Version) {
	kept := m.versions[:min(len(m.versions), rule.MaxVersions-1)]
	m.versions = append([]rule.Version{v}, kept...)
}
