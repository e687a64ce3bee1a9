/*
 * Reading libtorch's private fields. An explicit instantiation may name a private member, so a friend function
 * defined in one hands out its pointer to member: the compiler checks class, name and type, and nothing is cast.
 * TGD_PRIVATE belongs in a .cpp file, in an unnamed namespace.
 */
#ifndef TGD_PRIVATE_FIELDS_H
#define TGD_PRIVATE_FIELDS_H

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wnon-template-friend"
#endif

/* After this, object.*field(tag{}) is object.member. */
#define TGD_PRIVATE(tag, type, member)                                                                                 \
    struct tag {                                                                                                       \
        friend constexpr auto field(tag);                                                                              \
    };                                                                                                                 \
    template <auto Member> struct expose_##tag {                                                                       \
        friend constexpr auto field(tag)                                                                               \
        {                                                                                                              \
            return Member;                                                                                             \
        }                                                                                                              \
    };                                                                                                                 \
    template struct expose_##tag<&type::member>;

#endif
