/*
 * Locks and fork(). A child has only the thread that forked: a lock that another thread held at that moment would stay
 * locked in it for ever, and what it guards might be half written. So fork() waits until it holds them all, and lets
 * them go on both sides. No holder of one of them waits for Python's GIL, which the forking thread may have.
 */
#ifndef TGD_FORKS_H
#define TGD_FORKS_H

namespace tgd
{

/* From the first recording on. Any number of times. */
void watch_forks();

/* In the order in which one is taken while another is held. */
void lock_walks();
void unlock_walks();
void lock_gradient_events();
void unlock_gradient_events();
void lock_measures();
void unlock_measures();
void lock_rows();
void unlock_rows();

} // namespace tgd

#endif
